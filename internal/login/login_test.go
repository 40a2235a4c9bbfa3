package login

import "testing"

func TestMisread(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]bool{
		"amqp://me:hun/ter2@mq/": true, "amqp://me:hun?ter2@mq": true, "amqp://me:31#ter2@mq:1": true, "amqp://me@he:2/@mq": true,
		"amqp://me:hun%2Fter2@mq/vhost?a=b#c": false, "amqp://me:hun@ter2@mq": false, "amqp://mq/vhost": false, "mq": false, "": false,
	} {
		if got := Misread(url); got != want {
			t.Errorf("%s: %t", url, got)
		}
	}
}
