// Package cluster starts Apache Kafka's own broker for tests and benchmarks: one node, or three, on free
// ports of loopback. It fetches the jars with Maven into the folder .kafka of the checkout, once. What it starts
// ends with the test process, however that ends.
//
// Each node has two doors. Workers come in by the one that Brokers names, with the security that was asked for
// and through a proxy if one was. Direct names the other, which is plain, always open, and for the test itself.
//
// Clusters take seconds and memory. A package of tests shares one where it can, with fresh names of topics and
// groups for each test.
package cluster
