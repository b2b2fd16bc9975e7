package jq

import (
	"context"
	"slices"
	"strings"

	"github.com/itchyny/gojq"

	"github.com/a0c75104/enricher/event"
)

// Template is text with interpolated expressions, such as "https://\(.meta.domain)/wiki". It is
// immutable and safe for use by many goroutines at once.
type Template struct {
	src   string
	parts []part
	paths []event.Path
	reads bool

	url    *urlPlan // nil: urlErr says why the template makes no URL
	urlErr error
	hidden hidden
}

// part is a piece of a template: text as written, or an expression.
type part struct {
	text    string
	expr    *Expr
	at      int       // where the part begins in the source, -1 if not known
	format  string    // "@uri" and the like, which jq's formatted strings apply to each value
	apply   *gojqNode // the format
	escaped bool      // the expression itself ends with | @uri
}

// CompileTemplate compiles a template: text in which \(EXPRESSION) interpolates and \\( stands for \(
// itself. A jq string as a whole ("…", @uri "…") is accepted too. The error is a *SyntaxError.
func CompileTemplate(src string) (*Template, error) {
	t := &Template{src: src}
	parts, ok, err := stringParts(src)
	if err == nil && !ok {
		parts, err = textParts(src)
	}
	if err != nil {
		return nil, err
	}
	t.parts = parts
	for _, p := range parts {
		if p.expr == nil {
			continue
		}
		t.reads = t.reads || p.expr.reads
		for _, path := range p.expr.paths {
			if !slices.ContainsFunc(t.paths, func(q event.Path) bool { return q.String() == path.String() }) {
				t.paths = append(t.paths, path)
			}
		}
	}
	t.url, t.urlErr = planURL(parts)
	return t, nil
}

// String returns the template as it was written.
func (t *Template) String() string { return t.src }

// Paths returns the plain paths that the template reads from the value; "." stands for all of it.
func (t *Template) Paths() []event.Path { return slices.Clone(t.paths) }

// ReadsValue reports whether the template looks at the event's value at all.
func (t *Template) ReadsValue() bool { return t.reads }

// Variables returns the names, without the dollar sign, of those variables of the event that the template uses.
func (t *Template) Variables() []string {
	var out []string
	for _, p := range t.parts {
		if p.expr != nil {
			out = append(out, p.expr.vars...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Literal reports whether the template has no expression in it.
func (t *Template) Literal() bool {
	return !slices.ContainsFunc(t.parts, func(p part) bool { return p.expr != nil })
}

// Text returns the text for ev. An expression that gives null or empty text is a Reject of type
// MissingField.
func (t *Template) Text(ctx context.Context, ev *event.Event) (string, error) {
	in := newInput(ctx, ev)
	if len(t.parts) == 1 {
		return t.parts[0].value(in)
	}
	var b strings.Builder
	for _, p := range t.parts {
		s, err := p.value(in)
		if err != nil {
			return "", err
		}
		b.WriteString(s)
	}
	return b.String(), nil
}

func (p *part) value(in *input) (string, error) {
	if p.expr == nil {
		return p.text, nil
	}
	s, err := p.plain(in)
	if err != nil || p.apply == nil {
		return s, err
	}
	x, err := p.expr.one(in)
	if err != nil {
		return "", err
	}
	v, err := x.decode()
	if err != nil {
		return "", err
	}
	out, err := p.apply.run(&input{ctx: in.ctx, ev: in.ev, doc: in.doc, root: v, decoded: true}, 1)
	if err != nil {
		return "", p.expr.wrap(err)
	}
	s, ok := out[0].(string)
	if !ok {
		return "", event.Rejectf(event.Expression, "evaluating %q: %s gave no text", p.expr.Name(), p.format)
	}
	return s, nil
}

// plain is value before the format.
func (p *part) plain(in *input) (string, error) {
	s, missing, err := p.expr.text(in)
	switch {
	case err != nil:
		return "", err
	case missing:
		return "", event.Rejectf(event.MissingField, `\(%s) is missing or null`, p.expr.Name())
	case s == "":
		return "", event.Rejectf(event.MissingField, `\(%s) is empty`, p.expr.Name())
	}
	return s, nil
}

// textParts splits text with \( ).
func textParts(src string) ([]part, error) {
	var parts []part
	var text strings.Builder
	start := 0
	flush := func() {
		if text.Len() > 0 {
			parts = append(parts, part{text: text.String(), at: start})
			text.Reset()
		}
	}
	for i := 0; i < len(src); {
		switch {
		case strings.HasPrefix(src[i:], `\\(`):
			text.WriteString(`\(`)
			i += 3
		case strings.HasPrefix(src[i:], `\(`):
			flush()
			end := closing(src, i+2)
			if end < 0 {
				return nil, &SyntaxError{Offset: i, Message: `\( is not closed by )`}
			}
			p, err := exprPart(src[i+2:end], i+2)
			if err != nil {
				return nil, err
			}
			parts = append(parts, p)
			i = end + 1
			start = i
		default:
			text.WriteByte(src[i])
			i++
		}
	}
	flush()
	if len(parts) == 0 {
		parts = []part{{}}
	}
	return parts, nil
}

func exprPart(src string, at int) (part, error) {
	q, err := parse(src)
	if err != nil {
		return part{}, shifted(err, at)
	}
	e, err := compile(strings.TrimSpace(src), q)
	if err != nil {
		return part{}, shifted(err, at)
	}
	return part{expr: e, at: at - 2, escaped: endsInURI(q)}, nil
}

// endsInURI reports whether q is "… | @uri".
func endsInURI(q *gojq.Query) bool {
	for q.Term == nil && q.Op == gojq.OpPipe {
		q = q.Right
	}
	return q.Term != nil && q.Term.Type == gojq.TermTypeFormat && q.Term.Format == "@uri"
}

// closing returns the place of the parenthesis that closes the one before i, -1 if there is none. It
// knows strings, what is interpolated in them, and comments.
func closing(src string, i int) int {
	for depth := 1; i < len(src); i++ {
		switch src[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i
			}
		case '"':
			if i = closingQuote(src, i+1); i < 0 {
				return -1
			}
		case '#':
			n := strings.IndexByte(src[i:], '\n')
			if n < 0 {
				return -1
			}
			i += n
		}
	}
	return -1
}

func closingQuote(src string, i int) int {
	for ; i < len(src); i++ {
		switch {
		case src[i] == '"':
			return i
		case strings.HasPrefix(src[i:], `\(`):
			if i = closing(src, i+2); i < 0 {
				return -1
			}
		case src[i] == '\\':
			i++
		}
	}
	return -1
}

// stringParts splits a jq string that is the whole source; ok is false where src is none.
func stringParts(src string) (parts []part, ok bool, err error) {
	text := strings.TrimSpace(src)
	if !strings.HasSuffix(text, `"`) || !strings.HasPrefix(text, `"`) && !strings.HasPrefix(text, "@") {
		return nil, false, nil
	}
	q, err := gojq.Parse(text)
	if err != nil || q.Term == nil || q.Term.Str == nil || len(q.Term.SuffixList) > 0 || len(q.FuncDefs) > 0 {
		return nil, false, nil
	}
	if q, err = parse(src); err != nil {
		return nil, false, err
	}
	str, format := q.Term.Str, q.Term.Format
	if str.Queries == nil {
		return []part{{text: str.Str}}, true, nil
	}
	for _, piece := range str.Queries {
		if piece.Term.Str != nil {
			parts = append(parts, part{text: piece.Term.Str.Str, at: -1})
			continue
		}
		p, err := formatPart(src, piece.Term.Query, format)
		if err != nil {
			return nil, false, err
		}
		parts = append(parts, p)
	}
	return parts, true, nil
}

// formatPart is an interpolation of the jq string src.
func formatPart(src string, q *gojq.Query, format string) (part, error) {
	p := part{at: -1, format: format, escaped: endsInURI(q)}
	e, err := compile(q.String(), q)
	if err != nil {
		// The place within the rewritten text says nothing about src.
		return part{}, &SyntaxError{Offset: -1, Message: err.Error()}
	}
	p.expr = e
	if format == "" || format == "@text" {
		return p, nil
	}
	f, err := gojq.Parse(format)
	if err == nil {
		p.apply, err = new(planner).gojq(f)
	}
	if err != nil {
		return part{}, &SyntaxError{Offset: strings.Index(src, format), Message: err.Error()}
	}
	return p, nil
}
