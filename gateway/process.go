package gateway

import (
	"net"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Process is what is known of a process that works for jobs: what Flink calls a task manager.
type Process struct {
	ID       string // stays while the process does
	Endpoint string // host:port of its gateway
	Started  time.Time
	Seen     time.Time // when it was last heard of
	CPUs     int
	Memory   Memory
}

// Memory is what a Go process uses of it, in bytes.
type Memory struct {
	Machine, Free int64 // of the machine; 0 where that is not known
	HeapUsed      int64 // live objects, and dead ones that are not swept
	HeapHeld      int64 // of the heap, as the system gave it
	Limit         int64 // soft limit of the runtime, 0: none
	Other         int64 // stacks, and what the runtime needs itself
	Collections   int64
	CollectingMs  int64 // time of all CPUs for collecting
}

// Host is the endpoint without its port.
func (p Process) Host() string {
	host, _, err := net.SplitHostPort(p.Endpoint)
	if err != nil {
		return p.Endpoint
	}
	return host
}

func (p Process) port() int {
	_, port, _ := net.SplitHostPort(p.Endpoint)
	n, _ := strconv.Atoi(port)
	return n
}

// began is when this process did, near enough.
var began = time.Now()

// ThisProcess returns what tells of this process, by a name and the address of its gateway.
func ThisProcess(id, endpoint string) func() Process {
	return func() Process {
		return Process{ID: id, Endpoint: endpoint, Started: began, Seen: time.Now(), CPUs: runtime.GOMAXPROCS(0), Memory: readMemory()}
	}
}

// The metrics of the runtime that readMemory asks for. They cost less than runtime.ReadMemStats, which stops the world.
var runtimeMetrics = []string{
	"/memory/classes/heap/objects:bytes", "/memory/classes/heap/unused:bytes", "/memory/classes/heap/free:bytes",
	"/memory/classes/total:bytes", "/gc/gomemlimit:bytes", "/gc/cycles/total:gc-cycles", "/cpu/classes/gc/total:cpu-seconds",
}

func readMemory() Memory {
	samples := make([]metrics.Sample, len(runtimeMetrics))
	for i, name := range runtimeMetrics {
		samples[i].Name = name
	}
	metrics.Read(samples)
	count := func(i int) int64 {
		if samples[i].Value.Kind() != metrics.KindUint64 {
			return 0
		}
		return int64(min(samples[i].Value.Uint64(), 1<<62))
	}
	m := Memory{HeapUsed: count(0), HeapHeld: count(0) + count(1) + count(2), Limit: count(4), Collections: count(5)}
	m.Other = max(0, count(3)-m.HeapHeld)
	if m.Limit >= 1<<62 { // as good as none
		m.Limit = 0
	}
	if samples[6].Value.Kind() == metrics.KindFloat64 {
		m.CollectingMs = int64(samples[6].Value.Float64() * 1000)
	}
	m.Machine, m.Free = machineMemory()
	return m
}

// machineMemory reads what Linux tells of the machine's memory.
func machineMemory() (total, free int64) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, 0
	}
	return memInfo(text, "MemTotal:"), memInfo(text, "MemAvailable:")
}

// memInfo returns the bytes of one line, which has kB.
func memInfo(text []byte, key string) int64 {
	fields := strings.Fields(string(text))
	if i := slices.Index(fields, key); i >= 0 && i+1 < len(fields) {
		n, _ := strconv.ParseInt(fields[i+1], 10, 64)
		return n << 10
	}
	return 0
}
