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
}

// ReadOptions say how ReadBack reads. The zero value reads by the direct door, everything.
type ReadOptions struct {
	// Committed leaves out what open or aborted transactions wrote.
	Committed bool
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
	if kcat, err := exec.LookPath("kcat"); err == nil && settings["sasl.mechanism"] == "" {
		cmd = kcatReader(ctx, kcat, topic, settings)
	} else {
		python, err := pythonClient()
		if err != nil {
			return nil, err
		}
		cmd = exec.CommandContext(ctx, python, "-c", readProgram, topic, settings.String())
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
// null; then both, and the end of a line.
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
		line, rest, ok := bytes.Cut(text, []byte("\n"))
		var n [4]int64
		fields := strings.Fields(string(line))
		if !ok || len(fields) != len(n) {
			return nil, fmt.Errorf("reading record %d: the line is %q", len(records), line)
		}
		for i, f := range fields {
			var err error
			if n[i], err = strconv.ParseInt(f, 10, 64); err != nil {
				return nil, fmt.Errorf("reading record %d: %w", len(records), err)
			}
		}
		r := Record{Partition: int32(n[0]), Offset: n[1]}
		if int64(len(rest)) < max(n[2], 0)+max(n[3], 0)+1 {
			return nil, fmt.Errorf("reading record %d: it is cut off", len(records))
		}
		r.Key, rest = cutField(rest, n[2])
		r.Value, rest = cutField(rest, n[3])
		records, text = append(records, r), rest[1:]
	}
	return records, nil
}

// cutField cuts a field of n bytes off text; -1 is null.
func cutField(text []byte, n int64) (field, rest []byte) {
	if n < 0 {
		return nil, text
	}
	return text[:n:n], text[n:]
}
