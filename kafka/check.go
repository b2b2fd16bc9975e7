package kafka

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
)

// KeyError says which setting is at fault, by its name in a pipeline file: sasl.token_url.
type KeyError struct {
	Key string
	Err error
}

func (e *KeyError) Error() string { return e.Key + ": " + e.Err.Error() }

func (e *KeyError) Unwrap() error { return e.Err }

func keyErrorf(key, format string, args ...any) error {
	return &KeyError{key, fmt.Errorf(format, args...)}
}

// check validates c without opening anything and returns its settings. All that is wrong is told.
func (c *Connection) check(side Side) (*settings, error) {
	var errs []error
	if len(c.Brokers) == 0 {
		errs = append(errs, keyErrorf("brokers", "none given, name at least one as host:port"))
	}
	for i, b := range c.Brokers {
		if err := CheckBroker(b); err != nil {
			errs = append(errs, &KeyError{fmt.Sprintf("brokers[%d]", i), err})
		}
	}
	set, err := newSettings(side, c.Options)
	errs = append(errs, CheckTLS(c.TLS), c.SASL.Check(), err)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return set, nil
}

// checkOpts has the library say what it would not open a client for.
func checkOpts(opts []kgo.Opt) error {
	if err := kgo.ValidateOpts(opts...); err != nil {
		return fmt.Errorf("options: %w", err)
	}
	return nil
}

// CheckBroker says whether a client can call at broker.
func CheckBroker(broker string) error {
	host, port, err := net.SplitHostPort(broker)
	n, perr := strconv.Atoi(port)
	if err != nil || host == "" || perr != nil || n < 1 || n > 65535 {
		return fmt.Errorf("%q is no host:port", broker)
	}
	return nil
}

// CheckTopic says whether brokers would take topic as a name.
func CheckTopic(topic string) error {
	ok := topic != "" && topic != "." && topic != ".." && len(topic) <= 249
	for i := 0; ok && i < len(topic); i++ {
		c := topic[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
	}
	if !ok {
		return fmt.Errorf("%q is no name of a topic: letters, digits, dot, underscore and dash, at most 249, and neither . nor .. alone", topic)
	}
	return nil
}

// CheckTLS reads the files of t and returns a KeyError for each that cannot be used, joined. A nil t is well.
func CheckTLS(t *TLS) error {
	if t == nil {
		return nil
	}
	_, err := tlsConfig(t)
	return err
}

// Check returns a KeyError for each setting that the mechanism cannot do with or without, joined. A nil s
// is well.
func (s *SASL) Check() error {
	if s == nil {
		return nil
	}
	switch s.Mechanism {
	case "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512":
		return errors.Join(s.checkNoToken(), s.checkPassword())
	case "OAUTHBEARER":
		return s.checkOAuth()
	case "GSSAPI":
		return keyErrorf("sasl.mechanism", "GSSAPI (Kerberos) is not supported: use SCRAM-SHA-512, or OAUTHBEARER, on a listener of the cluster that offers it")
	}
	return keyErrorf("sasl.mechanism", "%q is not one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER", s.Mechanism)
}

func (s *SASL) checkNoToken() error {
	var errs []error
	for _, given := range []struct{ key, value string }{{"token_url", s.TokenURL}, {"token_file", s.TokenFile}, {"scope", s.Scope}} {
		if given.value != "" {
			errs = append(errs, keyErrorf("sasl."+given.key, "belongs to OAUTHBEARER, not to %s", s.Mechanism))
		}
	}
	return errors.Join(errs...)
}

func (s *SASL) checkPassword() error {
	var errs []error
	if s.Username == "" {
		errs = append(errs, keyErrorf("sasl.username", "is required by %s", s.Mechanism))
	}
	switch {
	case s.Password == "" && s.PasswordFile == "":
		errs = append(errs, keyErrorf("sasl.password", "is required: write ${NAME} to take it from the environment, or give password_file"))
	case s.Password != "" && s.PasswordFile != "":
		errs = append(errs, keyErrorf("sasl.password_file", "is given beside password: keep one"))
	}
	return errors.Join(errs...)
}

func (s *SASL) checkOAuth() error {
	switch {
	case s.TokenFile != "" && s.TokenURL != "":
		return keyErrorf("sasl.token_file", "is given beside token_url: keep one")
	case s.TokenFile != "":
		return nil
	case s.TokenURL == "":
		return keyErrorf("sasl.token_url", "is required by OAUTHBEARER, or give token_file")
	}
	return errors.Join(s.checkTokenURL(), s.checkPassword())
}

func (s *SASL) checkTokenURL() error {
	u, err := url.Parse(s.TokenURL)
	if err != nil || u.Host == "" {
		return keyErrorf("sasl.token_url", "is no URL")
	}
	ip := net.ParseIP(u.Hostname())
	if here := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback(); u.Scheme != "https" && (u.Scheme != "http" || !here) {
		return keyErrorf("sasl.token_url", "must be https, since it is sent the client's secret")
	}
	return nil
}
