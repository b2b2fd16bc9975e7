package pipeline

import (
	_ "embed" // the prose
	"fmt"
	"reflect"
	"strings"

	"github.com/a0c75104/enricher/functions"
	"github.com/a0c75104/enricher/gateway"
	"github.com/a0c75104/enricher/secrets"
)

// Docs returns the table of all keys as Markdown, made from the declarations that the loader reads by.
func Docs(specs []functions.Spec) (string, error) {
	all, err := allSpecs(specs)
	if err != nil {
		return "", err
	}
	d := &documenter{schemer: &schemer{specs: all}}
	d.WriteString(docsIntro)
	d.section("Top level", "", reflect.TypeFor[config]())
	d.section("`kafka`", "kafka", reflect.TypeFor[connection]())
	d.note("A `kafka:` block below that names no brokers of its own takes brokers, `tls` and `sasl` from here. " +
		"One that does is another cluster: only `options` are taken over, key by key.")
	d.section("`kafka.tls`", "tls", reflect.TypeFor[secrets.TLS]())
	d.section("`kafka.sasl`", "sasl", reflect.TypeFor[saslConfig]())
	d.section("`source.kafka`", "source.kafka", reflect.TypeFor[kafkaSource]())
	d.section("`source.kafka.start`", "source.kafka.start", reflect.TypeFor[start]())
	d.note("`start: -24h` is short for `start: {at: -24h}`.")
	d.section("`source.file`, `sink.file`", "file", reflect.TypeFor[fileEnd]())
	d.section("`sink.kafka`", "sink.kafka", reflect.TypeFor[kafkaSink]())
	d.section("`error_sink`", "error_sink", reflect.TypeFor[errorSink]())
	d.note("What an error event holds may be anything, so that its `topic` and `key` do not read the value, and `topic` reads " +
		"`$key` and `$headers` with a default alone: `\\($headers.kind // \"none\")`.")
	d.section("`partition_by`", "partition_by", reflect.TypeFor[partitionBy]())
	d.section("`window`", "window", reflect.TypeFor[windowConfig]())
	d.section("`limits`", "limits", reflect.TypeFor[limits]())
	d.section("`restart`", "restart", reflect.TypeFor[restart]())
	d.section("`gateway`", "gateway", reflect.TypeFor[gatewayConfig]())
	d.section("`gateway.tls`", "gateway.tls", reflect.TypeFor[gateway.TLS]())
	d.section("`process[]`", "process[]", reflect.TypeFor[itemKeys]())
	for _, spec := range all {
		d.function(spec)
	}
	d.options()
	d.WriteString(docsEvents)
	return d.String(), nil
}

// The prose around the tables.
var (
	//go:embed text/intro.md
	docsIntro string
	//go:embed text/events.md
	docsEvents string
)

// documenter writes tables of keys.
type documenter struct {
	strings.Builder
	schemer *schemer
}

func (d *documenter) printf(format string, args ...any) { fmt.Fprintf(d, format, args...) }

func (d *documenter) note(text string) { d.printf("\n%s\n", text) }

func (d *documenter) section(title, path string, t reflect.Type) {
	d.printf("\n## %s\n\n", title)
	var inherits bool
	if path != "kafka" {
		for i := range t.NumField() {
			inherits = inherits || t.Field(i).Anonymous && t.Field(i).Type == reflect.TypeFor[connection]()
		}
	}
	if inherits {
		d.printf("The keys of `kafka`, and:\n\n")
	}
	d.table(t, "", inherits)
}

const tableHead = "| key | type | default | meaning |\n|---|---|---|---|\n"

func (d *documenter) table(t reflect.Type, prefix string, inherits bool) {
	d.printf(tableHead)
	d.rows(t, prefix, inherits)
}

func (d *documenter) rows(t reflect.Type, prefix string, inherits bool) {
	skip := map[string]bool{}
	if inherits {
		for _, k := range keysOf(reflect.TypeFor[connection]()) {
			skip[k] = true
		}
	}
	for _, f := range fieldsOf(reflect.New(t).Elem()) {
		if skip[f.key] {
			continue
		}
		_, name := d.schemer.of(f.v.Type(), f.tag)
		def := f.tag.Get("default")
		switch {
		case f.tag.Get("required") == "true":
			def = "required"
		case def != "":
			def = "`" + def + "`"
		}
		d.printf("| `%s` | %s | %s | %s |\n", prefix+f.key, cell(name), def, cell(f.tag.Get("doc")))
	}
}

// cell makes text fit for a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

func (d *documenter) function(spec functions.Spec) {
	d.printf("\n### `%s`\n\n%s.\n\n", spec.Name(), strings.ToUpper(spec.Doc()[:1])+spec.Doc()[1:])
	docs := functions.DescribeOptions(spec)
	if len(docs) == 1 && docs[0].Path == "" {
		d.printf("Takes a single value: %s.\n", docs[0].Type)
		return
	}
	d.printf(tableHead)
	for _, o := range docs {
		def := o.Default
		switch {
		case o.Required:
			def = "required"
		case def != "":
			def = "`" + def + "`"
		}
		name := o.Type
		if len(o.Enum) > 0 {
			name = strings.Join(o.Enum, ", ")
		}
		d.printf("| `%s` | %s | %s | %s |\n", o.Path, cell(name), def, cell(o.Doc))
	}
}
