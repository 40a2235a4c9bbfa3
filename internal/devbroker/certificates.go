//go:build unix

package devbroker

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Certificates are the certificates of a broker that also listens with TLS, issued by a
// certificate authority of their own. They are valid for the name localhost and for no
// address.
type Certificates struct {
	port                     int
	authority, server, store string // files
	pool                     *x509.CertPool
}

// NewCertificates creates an authority and a server certificate below dir, and takes a
// port.
func NewCertificates(dir string) (*Certificates, error) {
	c := &Certificates{authority: filepath.Join(dir, "authority.pem"), server: filepath.Join(dir, "server.pem"), store: filepath.Join(dir, "server-store.pem"), pool: x509.NewCertPool()}
	var err error
	if c.port, err = TakePort(); err != nil {
		return nil, err
	}
	now := time.Now()
	template := func(name string) *x509.Certificate {
		return &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0), BasicConstraintsValid: true}
	}
	root := template("Posthaste's tests")
	root.IsCA, root.KeyUsage = true, x509.KeyUsageCertSign
	leaf := template("localhost")
	leaf.DNSNames, leaf.KeyUsage, leaf.ExtKeyUsage = []string{"localhost"}, x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	rootKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, rootKey.Public(), rootKey)
	if err != nil {
		return nil, err
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, root, key.Public(), rootKey)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	encode := func(kind string, der []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	}
	rootPEM := encode("CERTIFICATE", rootDER)
	c.pool.AppendCertsFromPEM(rootPEM)
	chain := append(encode("CERTIFICATE", leafDER), rootPEM...)
	return c, errors.Join(os.WriteFile(c.authority, rootPEM, 0o600), os.WriteFile(c.server, chain, 0o600), os.WriteFile(c.key(), encode("PRIVATE KEY", keyDER), 0o600),
		os.WriteFile(c.store, append(encode("PRIVATE KEY", keyDER), chain...), 0o600))
}

func (c *Certificates) key() string { return c.server + ".key" }

// Trust returns a configuration that trusts only the authority.
func (c *Certificates) Trust() *tls.Config { return &tls.Config{RootCAs: c.pool} }

// Authority returns the path of the authority's certificate, in PEM.
func (c *Certificates) Authority() string { return c.authority }

// Address returns the address at which the broker listens with TLS, for a name of this host.
func (c *Certificates) Address(name string) string {
	return net.JoinHostPort(name, strconv.Itoa(c.port))
}

// RabbitMQ returns lines for [StartRabbitMQ].
func (c *Certificates) RabbitMQ() []string {
	return []string{"listeners.ssl.default = " + c.Address("127.0.0.1"), "ssl_options.cacertfile = " + c.authority, "ssl_options.certfile = " + c.server, "ssl_options.keyfile = " + c.key(),
		"ssl_options.verify = verify_none", "ssl_options.fail_if_no_peer_cert = false"}
}

// Redis returns arguments for [StartRedis].
func (c *Certificates) Redis() []string {
	return []string{"--tls-port", strconv.Itoa(c.port), "--tls-cert-file", c.server, "--tls-key-file", c.key(), "--tls-ca-cert-file", c.authority, "--tls-auth-clients", "no"}
}

// nats returns lines for [StartNATS]. The long timeout lets a handshake finish on a loaded
// machine.
func (c *Certificates) nats() []string {
	return []string{fmt.Sprintf("tls: {cert_file: %q, key_file: %q, timeout: 30}", c.server, c.key())}
}

// kafka returns lines for server.properties, which replace earlier ones. Kafka tells clients
// to connect to localhost.
func (c *Certificates) kafka(plain, controller string) []string {
	return []string{
		"listeners=" + plain + "," + controller + ",TLS://" + c.Address("127.0.0.1"),
		"advertised.listeners=" + plain + ",TLS://" + c.Address("localhost"),
		"listener.name.tls.ssl.keystore.type=PEM",
		"listener.name.tls.ssl.keystore.location=" + c.store,
	}
}
