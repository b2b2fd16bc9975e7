package asynchttp_test

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/a0c75104/enricher/event"
)

func gzipped(text string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(text)) // into memory
	_ = z.Close()
	return b.Bytes()
}

// sendGzip answers with body as gzip and says it has length bytes.
func sendGzip(body []byte, length int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Length", strconv.Itoa(length))
		_, _ = w.Write(body) // a connection that is gone shows in what the client got
	}
}

func TestBrokenCompressionIsTheAnswersFaultAndABodyThatBreaksOffTheConnections(t *testing.T) {
	packed := gzipped(`{"text":"` + strings.Repeat("so long ", 1000) + `"}`)
	spoilt := bytes.Clone(packed)
	spoilt[len(spoilt)-6] ^= 1 // the checksum
	tests := []struct {
		name     string
		body     []byte
		length   int
		want     event.Type // "" where it ends well
		attempts int
	}{
		{"whole", packed, len(packed), "", 1},
		{"an empty body", nil, 0, event.EmptyResponse, 1},
		{"no gzip at all", []byte("no gzip at all"), 14, event.InvalidResponse, 1},
		{"garbage shorter than a gzip header", []byte("{}"), 2, event.InvalidResponse, 1},
		{"gzip cut in its header, the body whole", packed[:9], 9, event.InvalidResponse, 1},
		{"gzip cut in its data, the body whole", packed[:len(packed)/2], len(packed) / 2, event.InvalidResponse, 1},
		{"gzip without its checksum, the body whole", packed[:len(packed)-8], len(packed) - 8, event.InvalidResponse, 1},
		{"wrong checksum", spoilt, len(spoilt), event.InvalidResponse, 1},
		{"garbage behind it", append(bytes.Clone(packed), "and more"...), len(packed) + 8, event.InvalidResponse, 1},
		{"body breaks off in the header", packed[:5], len(packed), event.Connection, 3},
		{"body breaks off in the data", packed[:len(packed)/2], len(packed), event.Connection, 3},
		{"body breaks off before the checksum", packed[:len(packed)-8], len(packed), event.Connection, 3},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			url, client, _ := serve(t, sendGzip(tc.body, tc.length))
			f := build(t, client, "url: "+url+"/\ninto: .r\nretry: {attempts: 3, initial: 1ms, max: 1ms}")
			got := drive(t.Context(), f, `{}`)
			if got.kind() != tc.want || (tc.want == "") != (got.err == nil) || got.attempts != tc.attempts {
				t.Errorf("got %v after %d attempts, want %q after %d", got.err, got.attempts, tc.want, tc.attempts)
			}
			if tc.want == event.InvalidResponse && !strings.Contains(got.err.Error(), "decompressing the answer: ") {
				t.Errorf("message %q does not say that the compression is broken", got.err)
			}
		})
	}
}

func TestCompressedAnswersAreReadWholeOverOneConnection(t *testing.T) {
	asked := ""
	packed := gzipped(`{"n":1}`)
	url, client, connections := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header.Get("Accept-Encoding") + ", range " + r.Header.Get("Range")
		if r.Header.Get("Range") != "" {
			_, _ = w.Write([]byte(`{"n":1}`))
			return
		}
		sendGzip(packed, len(packed))(w, r)
	})
	for _, tc := range []struct{ options, asked string }{
		{"", "gzip, range "},
		{"headers: {Range: bytes=0-9}", ", range bytes=0-9"},
		{"", "gzip, range "},
	} {
		got := drive(t.Context(), build(t, client, "url: "+url+"/\ninto: .r\n"+tc.options), `{}`)
		if got.err != nil || got.value != `{"r":{"n":1}}` || asked != tc.asked {
			t.Errorf("got %s, %v, asked for %q; want {\"n\":1} and %q", got.value, got.err, asked, tc.asked)
		}
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections, want 1: a body was not read to its end", n)
	}
}

func TestMessageOfAFailedCallShowsItsAnswerDecompressed(t *testing.T) {
	url, client, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write(gzipped("not for you"))
	})
	got := drive(t.Context(), build(t, client, "url: "+url+"/\ninto: .r"), `{}`)
	if got.err == nil || !strings.Contains(got.err.Error(), `"not for you"`) {
		t.Errorf("got %v, want the text of the answer in it", got.err)
	}
}
