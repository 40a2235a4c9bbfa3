// Command posthaste is Posthaste as one program: `posthaste up` starts
// everything on one machine, `posthaste serve` and `posthaste worker` run it on
// a database of one's own, and the other commands look after it.
package main

import (
	"os"

	"github.com/posthaste-mq/posthaste/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:]))
}
