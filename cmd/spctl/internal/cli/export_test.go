package cli

// Clean is what everything that spctl prints goes through.
var Clean = clean

var PrintEffect = printEffect
