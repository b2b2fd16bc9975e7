package asynchttp

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"syscall"
)

// privateError says that a connection was not made, since the address is not of the public network.
type privateError struct{ addr netip.Addr }

func (e *privateError) Error() string {
	return fmt.Sprintf("the host has the address %s, which deny_private refuses", e.addr)
}

// publicOnly is the Control of a dialer: it sees the address that a name has turned out to have, just
// before the connection is made, so that no second look-up can give another one.
func publicOnly(_ context.Context, _, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("reading the address of the host: %w", err)
	}
	if !public(at.Addr()) {
		return &privateError{at.Addr()}
	}
	return nil
}

// reserved are networks that are not the public one's and of which netip does not know by itself.
var reserved = prefixes(
	"0.0.0.0/8",       // this network
	"100.64.0.0/10",   // carriers' own
	"192.0.0.0/24",    // protocol assignments
	"192.0.2.0/24",    // examples
	"198.18.0.0/15",   // benchmarks
	"198.51.100.0/24", // examples
	"203.0.113.0/24",  // examples
	"240.0.0.0/4",     // reserved, and broadcast
	"64:ff9b:1::/48",  // local translation
	"100::/64",        // discard
	"2001::/23",       // protocol assignments, Teredo among them
	"2001:db8::/32",   // examples
	"fec0::/10",       // site-local
)

// Networks of IPv6 whose addresses hold one of IPv4, and at which byte.
var (
	translated = netip.MustParsePrefix("64:ff9b::/96") // NAT64
	tunnelled  = netip.MustParsePrefix("2002::/16")    // 6to4
	compatible = netip.MustParsePrefix("::/96")        // IPv4-compatible
)

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// public reports whether a is an address of the public network.
func public(a netip.Addr) bool {
	a = a.WithZone("").Unmap()
	if !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLoopback() {
		return false
	}
	for _, p := range reserved {
		if p.Contains(a) {
			return false
		}
	}
	if a.Is4() {
		return true
	}
	b := a.As16()
	switch {
	case translated.Contains(a), compatible.Contains(a):
		return public(netip.AddrFrom4([4]byte(b[12:16])))
	case tunnelled.Contains(a):
		return public(netip.AddrFrom4([4]byte(b[2:6])))
	}
	return true
}

// proxyVariable returns the name of a variable that sets a proxy, "" where none does.
func proxyVariable() string {
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"} {
		if os.Getenv(name) != "" {
			return name
		}
	}
	return ""
}
