package server

// Accept is accept, for its tests.
var Accept = accept
