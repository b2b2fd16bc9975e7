package asynchttp

import (
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
)

// codingError says that the compression of an answer is broken though all of the answer came: a broken
// answer, not a broken connection.
type codingError struct{ err error }

func (e *codingError) Error() string { return e.err.Error() }
func (e *codingError) Unwrap() error { return e.err }

// askGzip asks for a compressed answer in the name of the call. Where the transport asks by itself it
// decompresses too, and what it says of a body that breaks off and of one that is no gzip may be the same.
// It returns headers of their own: those of the request belong to the client.
func askGzip(h http.Header) http.Header {
	h = maps.Clone(h)
	if h.Get("Range") == "" { // a part of a compressed answer cannot be read
		h.Set("Accept-Encoding", "gzip")
	}
	return h
}

// gunzip makes the body of resp a decompressed one where it is compressed, as the transport would.
func gunzip(resp *http.Response) {
	if resp.ContentLength == 0 || resp.Uncompressed || !strings.EqualFold(resp.Header.Get("Content-Encoding"), "gzip") {
		return
	}
	resp.Body = &gzipBody{raw: rawBody{ReadCloser: resp.Body}}
	resp.Header.Del("Content-Encoding")
	resp.Header.Del("Content-Length")
	resp.ContentLength, resp.Uncompressed = -1, true
}

// rawBody notes how a body ended.
type rawBody struct {
	io.ReadCloser
	end error // nil: not yet
}

// Read implements io.Reader.
func (b *rawBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end = err
	}
	return n, err
}

// unpackers are the readers that no body uses: each has a window of 32 KiB.
var unpackers = sync.Pool{New: func() any { return new(gzip.Reader) }}

// gzipBody is a body without its compression. It belongs to one goroutine.
type gzipBody struct {
	raw rawBody
	z   *gzip.Reader // nil: nothing was read yet
	err error        // of the last read, for all that follow
}

// Read implements io.Reader.
func (b *gzipBody) Read(p []byte) (n int, err error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.z == nil {
		b.z, _ = unpackers.Get().(*gzip.Reader) // the pool holds nothing else
		err = b.z.Reset(&b.raw)
	}
	if err == nil {
		n, err = b.z.Read(p)
	}
	switch {
	case err == nil, errors.Is(err, io.EOF):
	case b.raw.end != nil && !errors.Is(b.raw.end, io.EOF):
		err = b.raw.end
	default:
		err = &codingError{err}
	}
	b.err = err
	return n, err
}

// Close implements io.Closer.
func (b *gzipBody) Close() error {
	if b.z != nil {
		unpackers.Put(b.z)
		b.z = nil
	}
	b.err = errors.New("reading a body that is closed")
	return b.raw.Close()
}
