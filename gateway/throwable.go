package gateway

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"unicode/utf16"
)

// The exceptions of Flink that a failed operation is told as. Java clients know them by name.
const (
	classFailure      = "org.apache.flink.util.FlinkException"
	classJobNotFound  = "org.apache.flink.runtime.messages.FlinkJobNotFoundException"
	classJobEnded     = "org.apache.flink.runtime.messages.FlinkJobTerminatedWithoutCancellationException"
	classJobExecution = "org.apache.flink.runtime.client.JobExecutionException"
)

// classOf finds what a Java client would be told that an error is.
func classOf(err error) string {
	var ended *EndedError
	var unknown *unknownJobError
	switch {
	case errors.As(err, &unknown):
		return classJobNotFound
	case errors.As(err, &ended):
		return classJobEnded
	}
	return classFailure
}

// failureCause is a failure as Flink's clients read it: of the three fields they take the last.
type failureCause struct {
	Class      string `json:"class"`
	StackTrace string `json:"stack-trace"`
	Serialized string `json:"serialized-throwable"`
}

func failureOf(class, text string) *failureCause {
	message := class + ": " + text
	return &failureCause{Class: class, StackTrace: message, Serialized: base64.StdEncoding.EncodeToString(throwable(class, message, message))}
}

// throwablePrefix is what Java writes before the fields of an org.apache.flink.util.SerializedThrowable: its class, which
// has not changed since 1.20, and those above it.
const throwablePrefix = "" +
	"aced0005737200296f72672e6170616368652e666c696e6b2e7574696c2e53657269616c697a65645468726f7761626c6565" +
	"169df51fa713f30200034c001966756c6c537472696e676966696564537461636b54726163657400124c6a6176612f6c616e" +
	"672f537472696e673b4c00166f726967696e616c4572726f72436c6173734e616d6571007e00015b001373657269616c697a" +
	"6564457863657074696f6e7400025b42787200136a6176612e6c616e672e457863657074696f6ed0fd1f3e1a3b1cc4020000" +
	"787200136a6176612e6c616e672e5468726f7761626c65d5c635273977b8cb0300044c000563617573657400154c6a617661" +
	"2f6c616e672f5468726f7761626c653b4c000d64657461696c4d65737361676571007e00015b000a737461636b5472616365" +
	"74001e5b4c6a6176612f6c616e672f537461636b5472616365456c656d656e743b4c00147375707072657373656445786365" +
	"7074696f6e737400104c6a6176612f7574696c2f4c6973743b787070"

// throwable writes an exception in Java's serialization, which is the only form in which Flink's clients take a failure.
func throwable(class, message, stack string) []byte {
	out, err := hex.DecodeString(throwablePrefix)
	if err != nil {
		panic("gateway: the prefix of a serialized exception is not hex") // a mistake in the constant above
	}
	out = appendJava(out, message)
	out = append(out, 0x70, 0x70, 0x78) // no stack trace, nothing suppressed, end of the block
	out = appendJava(out, stack)
	out = appendJava(out, class)
	return append(out, 0x70) // the exception itself is left out: no client needs to know its class
}

// appendJava appends a text as Java's serialization has it.
func appendJava(out []byte, s string) []byte {
	utf := modifiedUTF8(s)
	if len(utf) <= 0xffff {
		out = append(out, 0x74)
		out = binary.BigEndian.AppendUint16(out, uint16(len(utf)))
	} else {
		out = append(out, 0x7c)
		out = binary.BigEndian.AppendUint64(out, uint64(len(utf)))
	}
	return append(out, utf...)
}

// modifiedUTF8 is Java's own: NUL takes two bytes, and what lies beyond 16 bits is two surrogates of three each.
func modifiedUTF8(s string) []byte {
	out := make([]byte, 0, len(s))
	for _, u := range utf16.Encode([]rune(s)) {
		switch {
		case u != 0 && u < 0x80:
			out = append(out, byte(u))
		case u < 0x800:
			out = append(out, 0xc0|byte(u>>6), 0x80|byte(u&0x3f))
		default:
			out = append(out, 0xe0|byte(u>>12), 0x80|byte(u>>6&0x3f), 0x80|byte(u&0x3f))
		}
	}
	return out
}
