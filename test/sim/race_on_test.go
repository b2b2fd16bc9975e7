//go:build race && !synctests

package sim_test

const raceEnabled = true
