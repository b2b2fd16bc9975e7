package asynchttp

// Public reports whether an address is one of the public network.
var Public = public
