// Command broker is a Kafka broker in a process of its own, for tests that stop and kill the processes
// around it. It keeps to loopback and to memory, and prints its address as its first line.
//
// It takes commands on standard input and answers each with the line "ok", or with what is wrong:
//
//	produce stop TOPIC   hold requests that produce to the topic, without an answer
//	produce go TOPIC     let them go on
//
// It ends at the end of its input, so that it does not outlive the test.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "broker:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("broker", flag.ContinueOnError)
	topics := map[string]int32{}
	flags.Func("topic", "NAME:PARTITIONS, a topic to make", func(text string) error {
		name, partitions, _ := strings.Cut(text, ":")
		n, err := strconv.ParseInt(partitions, 10, 32)
		topics[name] = int32(n)
		return err
	})
	session := flags.Duration("min-session", time.Second, "shortest session timeout that members may ask for")
	if err := flags.Parse(args); err != nil {
		return err
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(*session))
	if err != nil {
		return fmt.Errorf("starting the broker: %w", err)
	}
	defer cluster.Close()
	for name, partitions := range topics {
		if err := cluster.CreateTopic(name, partitions, nil); err != nil {
			return fmt.Errorf("creating topic %q: %w", name, err)
		}
	}
	gates := newGates(cluster)
	defer gates.openAll()
	fmt.Fprintln(out, cluster.ListenAddrs()[0])

	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	lines := linesOf(in)
	for {
		select {
		case <-stop:
			return nil
		case line, ok := <-lines:
			if !ok {
				return nil
			}
			if err := obey(line, gates); err != nil {
				fmt.Fprintln(out, err)
				continue
			}
			fmt.Fprintln(out, "ok")
		}
	}
}

// linesOf reads in until it ends. The goroutine cannot be waited for: a read of standard input ends with
// the process.
func linesOf(in io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(in); s.Scan(); {
			lines <- s.Text()
		}
	}()
	return lines
}

func obey(line string, gates *gates) error {
	words := strings.Fields(line)
	switch {
	case len(words) == 3 && words[0] == "produce" && words[1] == "stop":
		return gates.close(words[2])
	case len(words) == 3 && words[0] == "produce" && words[1] == "go":
		gates.open(words[2])
		return nil
	}
	return fmt.Errorf("reading %q: unknown command", line)
}
