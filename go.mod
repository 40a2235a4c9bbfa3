module github.com/posthaste-mq/posthaste

go 1.26
