package gateway

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
)

func TestTextsAreWrittenAsJavaReadsThem(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       string
	}{
		{"letters", "ab", "t\x00\x02ab"},
		{"nothing", "", "t\x00\x00"},
		{"NUL", "\x00", "t\x00\x02\xc0\x80"},
		{"two and three bytes", "é€", "t\x00\x05\xc3\xa9\xe2\x82\xac"},
		{"beyond 16 bits: two surrogates", "😀", "t\x00\x06\xed\xa0\xbd\xed\xb8\x80"},
		{"no UTF-8", "\xff", "t\x00\x03\xef\xbf\xbd"},
		{"as long as two bytes tell", strings.Repeat("x", 65535), "t\xff\xff" + strings.Repeat("x", 65535)},
		{"longer", strings.Repeat("x", 65536), "|\x00\x00\x00\x00\x00\x01\x00\x00" + strings.Repeat("x", 65536)},
	} {
		if got := string(appendJava(nil, tc.text)); got != tc.want {
			t.Errorf("%s: got %.40q, want %.40q", tc.name, got, tc.want)
		}
	}
}

func TestAFailureIsASerializedThrowable(t *testing.T) {
	f := failureOf("a.B", "text")
	raw, err := base64.StdEncoding.DecodeString(f.Serialized)
	if err != nil {
		t.Fatal(err)
	}
	if len(throwablePrefix) != 2*378 || !bytes.HasPrefix(raw, []byte("\xac\xed\x00\x05sr\x00)org.apache.flink.util.SerializedThrowable")) {
		t.Errorf("the prefix has %d bytes, begins %q", len(throwablePrefix)/2, raw[:50])
	}
	if rest := raw[378:]; string(rest) != "t\x00\x09a.B: textppxt\x00\x09a.B: textt\x00\x03a.Bp" {
		t.Errorf("behind the prefix: %q", rest)
	}
	if f.Class != "a.B" || f.StackTrace != "a.B: text" {
		t.Errorf("got %+v", f)
	}
}
