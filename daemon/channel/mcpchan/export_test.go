package mcpchan

// Addressed is addressed.
var Addressed = addressed
