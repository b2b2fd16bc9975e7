package asynchttp_test

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/functions/asynchttp"
)

func TestPublicAddresses(t *testing.T) {
	for addr, want := range map[string]bool{
		"8.8.8.8": true, "208.80.154.224": true, "2620:0:861:ed1a::1": true, "::ffff:8.8.8.8": true, "64:ff9b::808:808": true, "2002:808:808::1": true,
		"127.0.0.1": false, "127.8.9.10": false, "10.1.2.3": false, "172.16.0.1": false, "172.31.255.255": false, "192.168.0.1": false,
		"169.254.169.254": false, "0.0.0.0": false, "0.1.2.3": false, "100.64.0.1": false, "192.0.0.8": false, "198.18.0.1": false,
		"224.0.0.1": false, "239.255.255.250": false, "240.0.0.1": false, "255.255.255.255": false,
		"::": false, "::1": false, "fe80::1": false, "fe80::1%eth0": false, "fc00::1": false, "fd12:3456::1": false, "fec0::1": false, "ff02::1": false,
		"::ffff:127.0.0.1": false, "::ffff:10.0.0.1": false, "::ffff:169.254.169.254": false, "::127.0.0.1": false,
		"64:ff9b::7f00:1": false, "64:ff9b::a9fe:a9fe": false, "2002:7f00:1::1": false, "2002:a00:1::": false, "2001:db8::1": false, "2001::1": false,
	} {
		if got := asynchttp.Public(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: public %v, want %v", addr, got, want)
		}
	}
}

// noProxy clears what the environment may say of proxies.
func noProxy(t *testing.T) {
	t.Helper()
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"} {
		t.Setenv(name, "")
	}
}

func TestPrivateAddressIsRefusedAsTheNameTurnsOut(t *testing.T) {
	noProxy(t)
	asked := 0
	url, client, connections := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		asked++
		_, _ = w.Write([]byte("1"))
	})
	port := url[strings.LastIndex(url, ":")+1:]
	const options = "url: http://\\(.h)/\nmethod: POST\nbody: .\ninto: .r\nallow_hosts: ['localhost:*', '127.0.0.1:*']\n"
	open := build(t, client, options)
	if got := drive(t.Context(), open, `{"h":"127.0.0.1:`+port+`"}`); got.err != nil {
		t.Fatal(got.err) // and its connection stays in the pool
	}
	f := build(t, client, options+"deny_private: true")
	for _, host := range []string{"127.0.0.1", "localhost"} {
		got := drive(t.Context(), f, `{"h":"`+host+`:`+port+`"}`)
		if got.kind() != event.Rejected || got.attempts != 1 || !strings.Contains(got.err.Error(), "which deny_private refuses") {
			t.Errorf("%s: got %v after %d attempts, want %s after one", host, got.err, got.attempts, event.Rejected)
		}
	}
	if asked != 1 || connections.Load() != 1 {
		t.Errorf("%d requests and %d connections, want 1 and 1", asked, connections.Load())
	}
	routed := build(t, client, options+"deny_private: true\nroutes: {http://localhost: '"+url+"'}")
	if got := drive(t.Context(), routed, `{"h":"localhost"}`); got.err != nil {
		t.Errorf("the target of a route: %v", got.err)
	}
}

func TestDenyPrivateBesideAProxyIsRefusedBeforeTheStart(t *testing.T) {
	noProxy(t)
	t.Setenv("https_proxy", "http://user:hush@proxy:3128")
	_, err := asynchttp.New(functions.Env{}, options(t, `{url: 'http://\(.h)/', allow_hosts: [a.org], into: .r, deny_private: true}`))
	o, ok := errors.AsType[*functions.OptionError](err)
	if !ok || o.Option != "deny_private" || !strings.Contains(err.Error(), "https_proxy") || strings.Contains(err.Error(), "hush") {
		t.Errorf("got %v, want a problem of deny_private that names the variable", err)
	}
}
