package file

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/a0c75104/enricher/streammanager"
)

const (
	batchLines = 1024
	batchBytes = 256 << 10 // a batch ends after the line that passes this
)

// nameOf checks the path of a source or sink and returns its name in records and messages: the path, or
// the standard stream that - stands for.
func nameOf(path, end, standard string) (string, error) {
	switch path {
	case "":
		return "", fmt.Errorf("a file %s needs a path, or - for %s", end, standard)
	case "-":
		return standard, nil
	}
	return path, nil
}

// lines cuts a stream of bytes into records.
type lines struct {
	in    *bufio.Reader
	topic string
	last  int64 // number of the line read last
	max   int64
}

func newLines(r io.Reader, topic string, maxBytes int64) *lines {
	return &lines{in: bufio.NewReaderSize(r, 64<<10), topic: topic, max: maxBytes}
}

// next returns the lines that are there, at least one and at most limit. It waits only for the first.
// At the end it returns io.EOF, and no error comes together with records.
func (l *lines) next(limit int) ([]streammanager.Record, error) {
	limit = min(limit, batchLines)
	var (
		buf  []byte
		recs []streammanager.Record
		ends []int
		now  time.Time
	)
	for len(recs) < limit && len(buf) < batchBytes {
		if len(recs) > 0 && !l.buffered() {
			break
		}
		from := len(buf)
		var err error
		buf, err = l.line(buf)
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(buf[from:])) == 0 {
			buf = buf[:from]
			continue
		}
		if now.IsZero() {
			now = time.Now()
		}
		recs = append(recs, streammanager.Record{Topic: l.topic, Offset: l.last, Timestamp: now})
		ends = append(ends, len(buf))
	}
	from := 0
	for i, end := range ends {
		recs[i].Value = buf[from:end:end]
		from = end
	}
	return recs, nil
}

// buffered reports whether a whole line can be had without reading.
func (l *lines) buffered() bool {
	have, err := l.in.Peek(l.in.Buffered())
	return err == nil && bytes.IndexByte(have, '\n') >= 0
}

// line appends the next line without its line feed. The last line may lack one.
func (l *lines) line(buf []byte) ([]byte, error) {
	from := len(buf)
	for {
		part, err := l.in.ReadSlice('\n')
		buf = append(buf, part...)
		read := len(buf) - from
		ended := err == nil
		if ended {
			read--
		}
		switch {
		case int64(read) > l.max:
			return nil, fmt.Errorf("line %d is longer than %d bytes, the most a line may have", l.last+1, l.max)
		case ended:
			l.last++
			return buf[:len(buf)-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && read > 0:
			l.last++
			return buf, nil
		case errors.Is(err, io.EOF):
			return nil, io.EOF
		default:
			return nil, fmt.Errorf("reading line %d: %w", l.last+1, err)
		}
	}
}
