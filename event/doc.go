// Package event holds what travels through a pipeline: the Event with its position, plain paths that
// are read and set on the bytes of a JSON value, the contract of a function, and the kinds of error
// that decide an event's outcome.
//
// It owns no goroutine and knows neither Kafka, HTTP nor YAML. An Event is used by one goroutine at a
// time. Values that no function touched leave byte for byte as they came.
package event
