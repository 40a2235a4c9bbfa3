package postgres

import "os"

func server() (string, error) { return os.Getenv("POSTHASTE_TEST_DATABASE_URL"), nil }
