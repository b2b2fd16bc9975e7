// Package secrets reads from files what proves who somebody is: certificates and their keys for TLS,
// passwords and tokens. Such files are replaced while a program runs; what is read here notices that.
//
// It owns the keys of a tls: block, which are the same for Kafka and for HTTP, and how a secret's text
// is cut. It leaves to others what a secret is used for. It opens no connection and starts no goroutine.
//
//	cfg, err := (&secrets.TLS{CAFile: "ca.pem"}).Config() // each call reads the files anew
//	token, err := secrets.NewFile("/run/secrets/token").Text()
package secrets
