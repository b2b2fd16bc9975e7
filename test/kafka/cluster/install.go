//go:build unix

package cluster

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// install is what brokers are started from: all of it lies in .kafka, and is made once.
type install struct {
	dir       string // .kafka/VERSION-HASH
	classPath string
	formatted string // folder of a node that was formatted and never started
	logging   string // log4j2 file
	archive   string // of classes, which halves the time of a start; empty: there is none
}

// clusterID is the id of every cluster: what tells them apart is their ports.
const clusterID = "ZW5yaWNoZXItdGVzdHMtMQ"

var installed = sync.OnceValues(func() (*install, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	return makeInstall(ctx)
})

// checkout returns the folder of the repository that the tests run in.
func checkout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "test", "kafka", "jars", "pom.xml")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("looking for test/kafka/jars/pom.xml: run the tests inside the checkout")
		}
		dir = parent
	}
}

// locked calls f while no other test process does so in this checkout.
func locked(home string, f func() error) error {
	if err := os.MkdirAll(home, 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(home, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("locking %s: %w", lock.Name(), err)
	}
	return f()
}

var kafkaVersion = regexp.MustCompile(`<kafka\.version>([^<]+)<`)

func makeInstall(ctx context.Context) (*install, error) {
	root, err := checkout()
	if err != nil {
		return nil, err
	}
	pom := filepath.Join(root, "test", "kafka", "jars", "pom.xml")
	text, err := os.ReadFile(pom)
	if err != nil {
		return nil, err
	}
	version := kafkaVersion.FindSubmatch(text)
	if version == nil {
		return nil, fmt.Errorf("reading %s: there is no kafka.version", pom)
	}
	home := filepath.Join(root, ".kafka")
	dir := filepath.Join(home, fmt.Sprintf("%s-%.4x", version[1], sha256.Sum256(text)))
	in := &install{
		dir: dir, classPath: filepath.Join(dir, "lib", "*"),
		formatted: filepath.Join(dir, "formatted"), logging: filepath.Join(dir, "log4j2.properties"),
	}
	return in, locked(home, func() error {
		if err := once(filepath.Join(dir, "lib"), func(to string) error { return fetchJars(ctx, pom, to) }); err != nil {
			return err
		}
		if err := os.WriteFile(in.logging, []byte(logging), 0o644); err != nil {
			return err
		}
		if err := once(in.formatted, func(to string) error { return in.format(ctx, to) }); err != nil {
			return err
		}
		return in.archiveClasses(ctx)
	})
}

// once makes the folder dir, unless it is there: in another place first, so that what is there is whole.
func once(dir string, f func(to string) error) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	part := dir + ".part"
	if err := errors.Join(os.RemoveAll(part), os.MkdirAll(part, 0o755)); err != nil {
		return err
	}
	if err := f(part); err != nil {
		return err
	}
	return os.Rename(part, dir)
}

func run(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running %s: %w:\n%s", cmd, err, out)
	}
	return nil
}

func fetchJars(ctx context.Context, pom, to string) error {
	return run(exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies",
		"-DincludeScope=runtime", "-DoutputDirectory="+to))
}

// format makes what a node finds in its folder at its first start. Only meta.properties differs between nodes.
func (in *install) format(ctx context.Context, to string) error {
	file := to + ".properties"
	text := properties{
		"process.roles": "broker,controller", "node.id": "1", "log.dirs": to,
		"controller.quorum.voters": "1@127.0.0.1:1", "listeners": "PLAINTEXT://127.0.0.1:2,CONTROLLER://127.0.0.1:1",
		"controller.listener.names": "CONTROLLER",
	}.String()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	defer os.Remove(file)
	return run(in.java(ctx, "kafka.tools.StorageTool", "format", "-t", clusterID, "-c", file))
}

// java returns a command that runs a class with args.
func (in *install) java(ctx context.Context, args ...string) *exec.Cmd {
	flags := []string{"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.configurationFile=" + in.logging, "-cp", in.classPath}
	return exec.CommandContext(ctx, "java", append(flags, args...)...)
}

// archiveClasses makes the archive of the classes that a broker loads. It holds for one Java and one place
// of the jars. Where it cannot be made, starts take longer and nothing else.
func (in *install) archiveClasses(ctx context.Context) error {
	version, err := javaVersion(ctx)
	if err != nil {
		return err
	}
	file := filepath.Join(in.dir, fmt.Sprintf("classes-%.4x.jsa", sha256.Sum256([]byte(version+in.dir))))
	if _, err := os.Stat(file); err == nil {
		in.archive = file
		return nil
	}
	part := file + ".part"
	err = in.rehearse(ctx, "-XX:ArchiveClassesAtExit="+part)
	if err == nil {
		err = os.Rename(part, file)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "cluster: brokers start slowly: archiving their classes: %v\n", err)
		return nil
	}
	in.archive = file
	return nil
}

// rehearse runs a node for a moment, with a flag for Java.
func (in *install) rehearse(ctx context.Context, flag string) error {
	c, err := newCluster(in, Options{})
	if err != nil {
		return err
	}
	c.Nodes[0].flags = append(c.Nodes[0].flags, flag)
	defer c.Close()
	if err := c.start(ctx); err != nil {
		return err
	}
	if err := c.tryOut(ctx); err != nil {
		return err
	}
	return c.Nodes[0].Stop(ctx)
}

// logging is the log4j2 configuration of the nodes, to standard output.
var logging = strings.TrimSpace(`
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss,SSS} %p %c{1}: %m%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
logger.common.name = org.apache.kafka.common
logger.common.level = warn
logger.config.name = kafka.server.KafkaConfig
logger.config.level = warn
logger.controller.name = org.apache.kafka.controller
logger.controller.level = warn
logger.log.name = org.apache.kafka.storage
logger.log.level = warn
logger.kafkalog.name = kafka.log
logger.kafkalog.level = warn
logger.cluster.name = kafka.cluster
logger.cluster.level = warn
logger.state.name = state.change.logger
logger.state.level = warn
`) + "\n"
