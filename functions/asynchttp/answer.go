package asynchttp

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/a0c75104/enricher/event"
)

const (
	excerptBytes = 200                        // of an answer, in a message
	excerptNeeds = excerptBytes + utf8.UTFMax // shows whether there is more
	drainBytes   = 256 << 10                  // read of an answer that is not used, so that its connection is
)

// errTooLarge says that an answer is over max_response.
var errTooLarge = errors.New("answer too large")

// readFailed reads an answer that is not good and closes it: its beginning for a message and, where it has no
// more than limit bytes, all of it. One that breaks off is shown as far as it came.
func (c *call) readFailed(resp *http.Response, limit int64) (whole []byte, begins string) {
	if resp.StatusCode < 200 { // switching protocols: the body is the bare connection, without an end
		_ = resp.Body.Close()
		return nil, ""
	}
	begin := make([]byte, excerptNeeds)
	n, err := io.ReadFull(resp.Body, begin)
	begin = begin[:n]
	if limit == 0 || err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		drain(resp.Body)
		return nil, excerpt(begin)
	}
	resp.Body = &rejoined{Reader: io.MultiReader(bytes.NewReader(begin), resp.Body), Closer: resp.Body}
	if whole, err = c.read(resp, limit); err != nil {
		whole = nil
	}
	return whole, excerpt(begin)
}

// rejoined is a body whose beginning has been read already.
type rejoined struct {
	io.Reader
	io.Closer
}

// excerpt cuts b to a short text that is valid UTF-8, and says so by dots: by these the beginning of a secret is known.
func excerpt(b []byte) string {
	s := strings.ToValidUTF8(string(b[:min(len(b), excerptNeeds)]), "\uFFFD")
	if len(s) <= excerptBytes {
		return strings.TrimSpace(s)
	}
	for len(s) > excerptBytes {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return strings.TrimSpace(s) + "…"
}

// drain reads what is left, within bounds, and closes: else the connection could not be used again.
func drain(body io.ReadCloser) {
	_, _ = io.Copy(io.Discard, io.LimitReader(body, drainBytes)) // only the connection is lost
	_ = body.Close()                                             // nothing more is read from it
}

// readAs gives the answer as JSON text.
func readAs(as string, h http.Header, body []byte) ([]byte, error) {
	if as == "base64" {
		if len(body) == 0 {
			return nil, event.Rejectf(event.EmptyResponse, "the answer is empty")
		}
		out := append(make([]byte, 0, base64.StdEncoding.EncodedLen(len(body))+2), '"')
		return append(base64.StdEncoding.AppendEncode(out, body), '"'), nil
	}
	body = bytes.TrimPrefix(body, []byte("\uFEFF"))
	if as == "text" {
		return readText(h, body)
	}
	body = bytes.TrimSpace(body)
	if len(body) == 0 {
		return nil, event.Rejectf(event.EmptyResponse, "the answer is empty")
	}
	if err := event.Valid(body); err != nil {
		return nil, event.Rejectf(event.InvalidResponse, "the answer is not JSON: %w: %q", err, excerpt(body))
	}
	return body, nil
}

// readText gives text as a JSON string. Latin-1 is converted; anything else must be UTF-8.
func readText(h http.Header, body []byte) ([]byte, error) {
	if len(body) == 0 {
		return nil, event.Rejectf(event.EmptyResponse, "the answer is empty")
	}
	_, params, _ := mime.ParseMediaType(h.Get("Content-Type")) // a broken header names no charset
	charset := strings.ToLower(params["charset"])
	if charset == "iso-8859-1" || charset == "latin1" {
		return fromLatin1(body), nil
	}
	if !utf8.Valid(body) {
		return nil, event.Reject(event.InvalidResponse, fmt.Errorf("the answer is not UTF-8 (charset %q): read it with as: base64", charset))
	}
	return event.AppendString(make([]byte, 0, len(body)+len(body)/8+2), string(body)), nil
}

// fromLatin1 gives body as a JSON string. It goes by pieces: the characters of all of it at once would take four times as much.
func fromLatin1(body []byte) []byte {
	const piece = 4 << 10
	out := append(make([]byte, 0, len(body)+len(body)/8+2), '"')
	latin, text := make([]rune, 0, piece), []byte(nil)
	for part := range slices.Chunk(body, piece) {
		latin = latin[:0]
		for _, c := range part {
			latin = append(latin, rune(c))
		}
		text = event.AppendString(text[:0], string(latin))
		out = append(out, text[1:len(text)-1]...)
	}
	return append(out, '"')
}
