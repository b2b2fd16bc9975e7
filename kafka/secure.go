package kafka

import (
	"crypto/tls"
	"errors"
	"slices"

	"github.com/a0c75104/enricher/secrets"
)

// TLS says how connections are protected. Its files are read again for each new connection.
type TLS = secrets.TLS

// tlsConfig reads the files of t. What it says is a KeyError for each fault, joined.
func tlsConfig(t *TLS) (*tls.Config, error) {
	cfg, err := t.Config()
	if err == nil {
		return cfg, nil
	}
	faults := []error{err}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		faults = slices.Clone(many.Unwrap())
	}
	for i, one := range faults {
		if k, ok := errors.AsType[*secrets.KeyError](one); ok {
			faults[i] = &KeyError{"tls." + k.Key, k.Err}
		}
	}
	return nil, errors.Join(faults...)
}
