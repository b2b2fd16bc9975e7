package kafka

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/url"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/a0c75104/enricher/streammanager"
)

// metadata is the text beside a committed offset. All who write there use this one format: a name with a
// version, then fields between blanks. A reader takes no notice of another version, and hands on what fields
// it does not know.
//
//	enricher/1 topic=mHqGx3vNQ7u0hCkq5rZcVQ at=120 read=earliest..latest from=0 until=400 finished=AgUBAw
type metadata struct {
	topic     kadm.TopicID // of another topic of the same name nothing is true
	at        int64        // the offset that it stands beside; finished is beyond it and no other
	span      span
	savepoint string
	finished  []streammanager.Range
	others    []string
}

// span is the part of a partition that a bounded read takes.
type span struct {
	of          string // how start and until were said; empty: the read has no end
	from, until int64
}

const (
	metadataName = "enricher/"
	metadataV1   = metadataName + "1"
	// maxMetadata is what brokers keep beside an offset unless offset.metadata.max.bytes says otherwise.
	maxMetadata = 4096
)

var base64Text = base64.RawURLEncoding

// text writes m in at most room bytes. What is finished farthest from the offset is left out first, so that
// most is said of what is read first.
func (m *metadata) text(room int) string {
	var b strings.Builder
	b.WriteString(metadataV1 + " topic=" + base64Text.EncodeToString(m.topic[:]) + " at=" + strconv.FormatInt(m.at, 10))
	if s := m.span; s.of != "" {
		b.WriteString(" read=" + url.QueryEscape(s.of) + " from=" + strconv.FormatInt(s.from, 10) + " until=" + strconv.FormatInt(s.until, 10))
	}
	if m.savepoint != "" {
		b.WriteString(" savepoint=" + url.QueryEscape(m.savepoint))
	}
	for _, field := range m.others {
		b.WriteString(" " + field)
	}
	const key = " finished="
	if ranges := packRanges(m.at, m.finished, base64Text.DecodedLen(room-b.Len()-len(key))); len(ranges) > 0 {
		b.WriteString(key + base64Text.EncodeToString(ranges))
	}
	return b.String()
}

// needed reports whether m says more than what saves work.
func (m *metadata) needed() bool { return m.span.of != "" || m.savepoint != "" || len(m.others) > 0 }

// packRanges writes as many ranges as fit: by turns how far the next one is and how long.
func packRanges(at int64, ranges []streammanager.Range, room int) []byte {
	var b []byte
	for _, r := range ranges {
		n := len(b)
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(r.From-at)), uint64(r.To-r.From))
		if len(b) > room {
			return b[:n]
		}
		at = r.To
	}
	return b
}

var errRanges = errors.New("the ranges are damaged")

func unpackRanges(at int64, b []byte) ([]streammanager.Range, error) {
	var ranges []streammanager.Range
	for len(b) > 0 {
		gap, n := binary.Uvarint(b)
		length, m := binary.Uvarint(b[max(n, 0):])
		if n <= 0 || m <= 0 {
			return nil, errRanges
		}
		from := at + int64(gap)
		to := from + int64(length)
		if from < at || to <= from || len(ranges) > 0 && gap == 0 {
			return nil, errRanges
		}
		ranges, at, b = append(ranges, streammanager.Range{From: from, To: to}), to, b[n+m:]
	}
	return ranges, nil
}

// parseMetadata reads what text wrote. ok is false for what nobody here wrote, and for what is damaged.
func parseMetadata(text string) (m metadata, ok bool) {
	fields := strings.Split(text, " ")
	if fields[0] != metadataV1 {
		return metadata{}, false
	}
	var topic, packed []byte
	var err error
	for _, field := range fields[1:] {
		key, value, _ := strings.Cut(field, "=")
		var bad error
		switch key {
		case "topic":
			topic, bad = base64Text.DecodeString(value)
		case "at":
			m.at, bad = strconv.ParseInt(value, 10, 64)
		case "read":
			m.span.of, bad = url.QueryUnescape(value)
		case "from":
			m.span.from, bad = strconv.ParseInt(value, 10, 64)
		case "until":
			m.span.until, bad = strconv.ParseInt(value, 10, 64)
		case "savepoint":
			m.savepoint, bad = url.QueryUnescape(value)
		case "finished":
			packed, bad = base64Text.DecodeString(value)
		case "":
		default:
			m.others = append(m.others, field)
		}
		err = errors.Join(err, bad)
	}
	if err != nil || len(topic) != len(m.topic) || m.at < 0 || m.span.until < m.span.from {
		return metadata{}, false
	}
	m.topic = kadm.TopicID(topic)
	if m.finished, err = unpackRanges(m.at, packed); err != nil {
		return metadata{}, false
	}
	return m, true
}
