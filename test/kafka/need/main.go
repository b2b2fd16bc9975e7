//go:build unix

// Command need says in one line why the tests on Apache Kafka are left out here, or prints nothing.
package main

import (
	"fmt"
	"os"

	"github.com/a0c75104/enricher/test/kafka/cluster"
)

func main() {
	if err := cluster.Check(); err != nil {
		fmt.Fprintln(os.Stdout, err)
	}
}
