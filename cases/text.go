package cases

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/a0c75104/enricher/event"
)

// Text is a value or a body. In YAML a text is taken as it is, and anything else is the JSON that it is there: numbers
// as they are spelled, keys in their order.
type Text string

// UnmarshalYAML reads a text or what stands for JSON.
func (t *Text) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		if n.Value == "" {
			return errors.New("is empty: leave it out")
		}
		*t = Text(n.Value)
		return nil
	}
	raw, err := appendJSON(nil, n)
	*t = Text(raw)
	return err
}

// appendJSON writes n as JSON.
func appendJSON(b []byte, n *yaml.Node) ([]byte, error) {
	var err error
	switch n.Kind {
	case yaml.MappingNode:
		b = append(b, '{')
		for i := 0; i+1 < len(n.Content) && err == nil; i += 2 {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(event.AppendString(b, n.Content[i].Value), ':')
			b, err = appendJSON(b, n.Content[i+1])
		}
		return append(b, '}'), err
	case yaml.SequenceNode:
		b = append(b, '[')
		for i, c := range n.Content {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendJSON(b, c); err != nil {
				break
			}
		}
		return append(b, ']'), err
	default:
		return appendScalar(b, n)
	}
}

func appendScalar(b []byte, n *yaml.Node) ([]byte, error) {
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return event.AppendString(b, n.Value), nil
	}
	switch n.Tag {
	case "!!null":
		return append(b, "null"...), nil
	case "!!bool":
		return append(b, strings.ToLower(n.Value)...), nil
	case "!!int", "!!float":
		if !json.Valid([]byte(n.Value)) {
			return b, fmt.Errorf("line %d: %s is no number of JSON: spell it as JSON does, or quote it", n.Line, n.Value)
		}
		return append(b, n.Value...), nil
	default:
		return event.AppendString(b, n.Value), nil
	}
}
