//go:build unix

package devbroker

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// kafkaVersion is the version whose jars scripts/needs downloads.
const kafkaVersion = "4.0.0"

// Kafka is a cluster of one broker, which is also its controller, on the loopback address.
// Its methods are not safe for concurrent use.
type Kafka struct {
	java, jars string
	dir        string
	port       int
	login      int // the port of the other listener
	process    *process
}

// The user of [Kafka.LoginAddress] with SASL PLAIN. Other users are added with
// SCRAM-SHA-512.
const (
	KafkaUser     = "relay"
	KafkaPassword = "secret"
)

// StartKafka starts a broker that stores its data below dir, and waits until it accepts
// connections, which takes 5 to 30 s. The broker creates no topics by itself. further are
// lines for server.properties. StartKafka fails with [ErrNotInstalled] if Kafka is not
// installed.
func StartKafka(ctx context.Context, dir string, further ...string) (*Kafka, error) {
	return startKafka(ctx, dir, nil, further)
}

// StartKafkaTLS is [StartKafka] for a broker that also listens with TLS.
func StartKafkaTLS(ctx context.Context, dir string, c *Certificates, further ...string) (*Kafka, error) {
	return startKafka(ctx, dir, c, further)
}

func startKafka(ctx context.Context, dir string, c *Certificates, further []string) (*Kafka, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, fmt.Errorf("Kafka %w: Java not found (Debian: apt-get install default-jre-headless)", ErrNotInstalled)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	k := &Kafka{java: java, jars: filepath.Join(cache, "posthaste", "kafka-"+kafkaVersion), dir: dir}
	if found, _ := filepath.Glob(filepath.Join(k.jars, "kafka_*.jar")); len(found) == 0 {
		return nil, fmt.Errorf("Kafka %s %w (make needs downloads it to %s)", kafkaVersion, ErrNotInstalled, k.jars)
	}
	var controller int
	for _, port := range []*int{&k.port, &k.login, &controller} {
		if *port, err = TakePort(); err != nil {
			return nil, err
		}
	}
	id := make([]byte, 16)
	rand.Read(id)
	plain := fmt.Sprintf("PLAINTEXT://%s,LOGIN://%s", k.Address(), k.LoginAddress())
	elected := fmt.Sprintf("CONTROLLER://127.0.0.1:%d", controller)
	if c != nil {
		further = append(c.kafka(plain, elected), further...)
	}
	settings := append([]string{
		"process.roles=broker,controller",
		"node.id=1",
		fmt.Sprintf("controller.quorum.voters=1@127.0.0.1:%d", controller),
		"listeners=" + plain + "," + elected,
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_PLAINTEXT,TLS:SSL",
		"sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512",
		"listener.name.login.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_" + KafkaUser + "=\"" + KafkaPassword + "\";",
		"listener.name.login.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;",
		"controller.listener.names=CONTROLLER",
		"log.dirs=" + filepath.Join(dir, "data"),
		"auto.create.topics.enable=false",
		"offsets.topic.replication.factor=1",
		"offsets.topic.num.partitions=1",
		"transaction.state.log.replication.factor=1",
		"transaction.state.log.min.isr=1",
		"transaction.state.log.num.partitions=1",
		"num.network.threads=2",
		"num.io.threads=2",
		"background.threads=1",
		"log.cleaner.enable=false",
	}, further...)
	// The minimal metadata of a data directory.
	meta := fmt.Sprintf("version=1\ncluster.id=%s\nnode.id=1\n", base64.RawURLEncoding.EncodeToString(id))
	if err := errors.Join(os.WriteFile(k.properties(), []byte(strings.Join(settings, "\n")+"\n"), 0o600), os.MkdirAll(filepath.Join(dir, "data"), 0o700),
		os.WriteFile(filepath.Join(dir, "data", "meta.properties"), []byte(meta), 0o600)); err != nil {
		return nil, err
	}
	return k, k.Start(ctx)
}

func (k *Kafka) properties() string { return filepath.Join(k.dir, "server.properties") }

// Start starts the broker again after Kill or Shutdown, with its data.
func (k *Kafka) Start(ctx context.Context) (err error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), k.java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
		"-cp", filepath.Join(k.jars, "*"), "kafka.Kafka", k.properties())
	cmd.Dir = k.dir
	// A request for the API versions. The response begins with its length.
	const question = "\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff"
	k.process, err = start(ctx, "Kafka", cmd, func() bool { return answers(ctx, k.Address(), question, "\x00\x00") })
	return err
}

// URL returns its URL.
func (k *Kafka) URL() string { return "kafka://" + k.Address() }

// Address returns its host and port.
func (k *Kafka) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(k.port)) }

// LoginAddress returns host and port of the listener that requires a login.
func (k *Kafka) LoginAddress() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(k.login)) }

// PID returns its process id, for measuring its cost.
func (k *Kafka) PID() int { return k.process.cmd.Process.Pid }

// Kill kills it with SIGKILL, like a crash of the machine.
func (k *Kafka) Kill() { k.process.end(syscall.SIGKILL) }

// Shutdown stops it in order and keeps its data.
func (k *Kafka) Shutdown() { k.process.end(syscall.SIGTERM) }

// Stop kills it; it is not started again.
func (k *Kafka) Stop() { k.Kill() }
