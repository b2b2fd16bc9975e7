package asynchttp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/a0c75104/enricher/event"
)

// cancelBody ends the context of a try when its body is closed.
type cancelBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (b *cancelBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// cause takes the URL off an error of http.Client: its query may hold credentials.
func cause(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// badCertificate reports whether the server's certificate was refused. No retry heals that.
func badCertificate(err error) bool {
	var (
		verification *tls.CertificateVerificationError
		authority    x509.UnknownAuthorityError
		name         x509.HostnameError
		invalid      x509.CertificateInvalidError
	)
	return errors.As(err, &verification) || errors.As(err, &authority) || errors.As(err, &name) || errors.As(err, &invalid)
}

// largeHeaders reports whether an answer was given up for its headers. net/http has no other sign of it than these texts.
func largeHeaders(err error) bool {
	text := err.Error()
	return strings.Contains(text, "server response headers exceeded") || strings.Contains(text, "response header list larger than")
}

// what names the request without its query, which may hold credentials.
func (c *call) what() string {
	return fmt.Sprintf("%s %s%s", c.f.o.Method, c.req.url.Host, c.req.url.EscapedPath())
}

// fail makes an error event of what became of the last try. A path may hold credentials too, and an
// answer repeat what it was asked with.
func (c *call) fail(kind event.Type, err error) error {
	err = fmt.Errorf("%s: %w", c.what(), err)
	for _, t := range c.f.o.templates() {
		err = t.HideIn(err)
	}
	if !c.f.o.Body.IsZero() {
		err = c.f.o.Body.HideIn(err)
	}
	if text := err.Error(); c.mask(text) != text {
		err = errors.New(c.mask(text))
	}
	return event.Reject(kind, err, event.Status(c.got.status))
}

// reject makes an error event of an answer that is of no use.
func (c *call) reject(err error) error {
	if c.parent.Err() != nil {
		return c.parent.Err()
	}
	r := event.AsReject(err)
	return c.fail(r.Type, r.Err)
}

// unset makes an error event of what Set returned. It names the path by itself. What is no Reject is about
// the answer, whose nesting is deeper than a value may be at that path.
func (c *call) unset(err error) error {
	var r *event.RejectError
	if errors.As(err, &r) {
		return within(err, "into")
	}
	return c.fail(event.InvalidResponse, fmt.Errorf("into: %w", err))
}

// within adds where to the message of err and leaves its kind as it is.
func within(err error, where string) error {
	var r *event.RejectError
	if !errors.As(err, &r) {
		return fmt.Errorf("%s: %w", where, err)
	}
	return event.Reject(r.Type, fmt.Errorf("%s: %w", where, r.Err), event.Status(r.Status))
}
