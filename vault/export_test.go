package vault

// The floor of production, and a setter, so that most tests need not pay for it.
var ProductionKDF = leastKDF

func SetLeastKDF(k KDF) { leastKDF = k }
