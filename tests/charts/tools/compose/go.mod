module idemproxy.test/compose

go 1.24.0

require github.com/compose-spec/compose-go/v2 v2.16.2

require (
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.1 // indirect
	golang.org/x/text v0.14.0 // indirect
)
