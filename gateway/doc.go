// Package gateway
package gateway
