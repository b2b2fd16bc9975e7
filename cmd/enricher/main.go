// Command enricher carries events from Kafka or files through functions and back. See package cli.
package main

import (
	"os"

	"github.com/a0c75104/enricher/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
