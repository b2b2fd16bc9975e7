//go:build unix

package cluster

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Record is one as another client than the product's read it.
type Record struct {
	Partition  int32
	Offset     int64
	Key, Value []byte // nil: null
	Headers    []Header
}

// Header is one of a record.
type Header struct {
	Key   string
	Value []byte // nil: null
}

// ReadOptions say how ReadBack reads. The zero value reads by the direct door, everything.
type ReadOptions struct {
	// Committed leaves out what open or aborted transactions wrote.
	Committed bool
	// Headers reads them too.
	Headers bool
	// User comes in as a worker, as that user of Security.Users, or as nobody where it is "-".
	User string
}

// ReadBack reads what topic holds now, with librdkafka: kcat where there is one and no login is needed, and
// Python's confluent-kafka otherwise. Each partition is in order.
func (c *Cluster) ReadBack(ctx context.Context, topic string, o ReadOptions) ([]Record, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	settings := c.clientSettings(o)
	var cmd *exec.Cmd
	if kcat, err := exec.LookPath("kcat"); err == nil && settings["sasl.mechanism"] == "" && !o.Headers {
		cmd = kcatReader(ctx, kcat, topic, settings)
	} else {
		python, err := pythonClient()
		if err != nil {
			return nil, err
		}
		cmd = exec.CommandContext(ctx, python, "-c", readProgram, topic, settings.String(), strconv.FormatBool(o.Headers))
	}
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("reading %q back with %s: %w:\n%s", topic, filepath.Base(cmd.Path), err, problems.Bytes())
	}
	records, err := parseRecords(out.Bytes())
	if err != nil {
		return nil, fmt.Errorf("reading %q back with %s: %w:\n%s", topic, filepath.Base(cmd.Path), err, problems.Bytes())
	}
	return records, nil
}

// clientSettings are those of librdkafka.
func (c *Cluster) clientSettings(o ReadOptions) properties {
	p := properties{"bootstrap.servers": strings.Join(c.Direct(), ","), "isolation.level": "read_uncommitted"}
	if o.Committed {
		p["isolation.level"] = "read_committed"
	}
	if o.User == "" {
		return p
	}
	p["bootstrap.servers"] = strings.Join(c.Brokers(), ",")
	p["security.protocol"] = c.options.Security.protocol()
	if c.ca != nil {
		p["ssl.ca.location"] = c.ca.file
	}
	if password, ok := c.options.Security.Users[o.User]; ok {
		p["sasl.mechanism"], p["sasl.username"], p["sasl.password"] = scram, o.User, password
	}
	return p
}

func kcatReader(ctx context.Context, kcat, topic string, settings properties) *exec.Cmd {
	args := []string{"-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", `%p %o %K %S\n%k%s\n`}
	for name, value := range settings {
		args = append(args, "-X", name+"="+value)
	}
	return exec.CommandContext(ctx, kcat, args...)
}

// readProgram prints like the format above: a line with partition, offset, and the lengths of key and value, -1 for
// null; then both, and the end of a line. Where headers are asked for, the line has their number too, and each follows
// in the same way, with the lengths of its name and its value.
//
//go:embed read.py
var readProgram string

//go:embed requirements.txt
var requirements string

// pythonClient returns a Python that has confluent-kafka.
var pythonClient = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	root, err := checkout()
	if err != nil {
		return "", err
	}
	home := filepath.Join(root, ".kafka")
	venv := filepath.Join(home, "python")
	done := filepath.Join(venv, "requirements.txt") // written last
	err = locked(home, func() error {
		if text, err := os.ReadFile(done); err == nil && string(text) == requirements {
			return nil
		}
		wanted := filepath.Join(home, "requirements.txt")
		return errors.Join(
			run(exec.CommandContext(ctx, "python3", "-m", "venv", "--clear", venv)),
			os.WriteFile(wanted, []byte(requirements), 0o644),
			run(exec.CommandContext(ctx, filepath.Join(venv, "bin", "python"), "-m", "pip", "install", "-q", "-r", wanted)),
			os.Rename(wanted, done),
		)
	})
	if err != nil {
		return "", fmt.Errorf("preparing a Python client: %w", err)
	}
	return filepath.Join(venv, "bin", "python"), nil
})

func parseRecords(text []byte) ([]Record, error) {
	var records []Record
	for len(text) > 0 {
		var r Record
		var n []int64
		var err error
		if n, r.Key, r.Value, text, err = cutEntry(text); err == nil && (len(n) < 2 || len(n) > 3) {
			err = fmt.Errorf("the line has %d numbers more than those of an entry, want 2 or 3", len(n))
		}
		for i := int64(0); err == nil && len(n) == 3 && i < n[2]; i++ {
			var name []byte
			var h Header
			_, name, h.Value, text, err = cutEntry(text)
			h.Key = string(name)
			r.Headers = append(r.Headers, h)
		}
		if err != nil {
			return nil, fmt.Errorf("reading record %d: %w", len(records), err)
		}
		r.Partition, r.Offset = int32(n[0]), n[1]
		records = append(records, r)
	}
	return records, nil
}

// cutEntry cuts a line of numbers off text, of which the last two are lengths, and the two fields that follow it. It
// returns the other numbers.
func cutEntry(text []byte) (numbers []int64, first, second, rest []byte, err error) {
	line, rest, ok := bytes.Cut(text, []byte("\n"))
	for _, f := range strings.Fields(string(line)) {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return nil, nil, nil, nil, err
		}
		numbers = append(numbers, n)
	}
	at := len(numbers) - 2
	if !ok || at < 0 {
		return nil, nil, nil, nil, fmt.Errorf("the line is %q", line)
	}
	if int64(len(rest)) < max(numbers[at], 0)+max(numbers[at+1], 0)+1 {
		return nil, nil, nil, nil, errors.New("it is cut off")
	}
	first, rest = cutField(rest, numbers[at])
	second, rest = cutField(rest, numbers[at+1])
	return numbers[:at], first, second, rest[1:], nil
}

// cutField cuts a field of n bytes off text; -1 is null.
func cutField(text []byte, n int64) (field, rest []byte) {
	if n < 0 {
		return nil, text
	}
	return text[:n:n], text[n:]
}
