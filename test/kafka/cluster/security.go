//go:build unix

package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// authority signs the certificates of a cluster.
type authority struct {
	dir  string
	file string // its own certificate
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(dir string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &authority{dir: dir, file: filepath.Join(dir, "ca.pem"), key: key}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tests"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	signed, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return a, writePEM(a.file, block("CERTIFICATE", signed))
}

// issue writes a certificate for name and its key, in two files and in one.
func (a *authority) issue(name string) (certFile, keyFile, both string, err error) {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return "", "", "", err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", "", err
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", "", "", err
	}
	signed, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return "", "", "", err
	}
	at := filepath.Join(a.dir, name)
	certFile, keyFile, both = at+".crt", at+".key", at+".pem"
	for file, blocks := range map[string][]*pem.Block{
		certFile: {block("CERTIFICATE", signed)}, keyFile: {block("PRIVATE KEY", text)},
		both: {block("PRIVATE KEY", text), block("CERTIFICATE", signed)},
	} {
		if err := writePEM(file, blocks...); err != nil {
			return "", "", "", err
		}
	}
	return certFile, keyFile, both, nil
}

func block(kind string, text []byte) *pem.Block { return &pem.Block{Type: kind, Bytes: text} }

func writePEM(file string, blocks ...*pem.Block) error {
	var text []byte
	for _, b := range blocks {
		text = append(text, pem.EncodeToMemory(b)...)
	}
	return os.WriteFile(file, text, 0o600)
}

// serverProperties returns the TLS settings of a node's door for workers.
func (a *authority) serverProperties(n *Node, clientCerts bool) (properties, error) {
	_, _, both, err := a.issue(fmt.Sprintf("node-%d", n.ID))
	if err != nil {
		return nil, err
	}
	const door = "listener.name.client.ssl."
	p := properties{
		door + "keystore.type": "PEM", door + "keystore.location": both,
		door + "truststore.type": "PEM", door + "truststore.location": a.file,
	}
	if clientCerts {
		p[door+"client.auth"] = "required"
	}
	return p, nil
}

// CAFile is the certificate that signed those of the nodes; empty without TLS.
func (c *Cluster) CAFile() string {
	if c.ca == nil {
		return ""
	}
	return c.ca.file
}

// Certificate makes a certificate for a client: the nodes know it as "User:CN=" and name.
func (c *Cluster) Certificate(name string) (certFile, keyFile string, err error) {
	if c.ca == nil {
		return "", "", fmt.Errorf("making a certificate for %q: the cluster was started without TLS", name)
	}
	certFile, keyFile, _, err = c.ca.issue(name)
	return certFile, keyFile, err
}

// SetPassword gives a user a password, from the next login on.
func (c *Cluster) SetPassword(ctx context.Context, user, password string) error {
	done, err := c.Admin.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{
		{User: user, Mechanism: kadm.ScramSha256, Iterations: 4096, Password: password},
	})
	if err == nil {
		err = done.Error()
	}
	if err != nil {
		return fmt.Errorf("giving %q a password: %w", user, err)
	}
	return nil
}

func (c *Cluster) setUsers(ctx context.Context) error {
	for user, password := range c.options.Security.Users {
		if err := c.SetPassword(ctx, user, password); err != nil {
			return err
		}
	}
	return nil
}

// Connection returns what a pipeline file has under kafka: to come in as a worker, in one line. user is
// one of Security.Users, or empty.
func (c *Cluster) Connection(user string) string {
	parts := []string{fmt.Sprintf(`brokers: ["%s"]`, strings.Join(c.Brokers(), `", "`))}
	if c.ca != nil {
		parts = append(parts, fmt.Sprintf("tls: {ca_file: %q}", c.ca.file))
	}
	if user != "" {
		parts = append(parts, fmt.Sprintf("sasl: {mechanism: %s, username: %q, password: %q}", scram, user, c.options.Security.Users[user]))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
