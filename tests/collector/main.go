// A small OpenTelemetry collector for the tests: takes OTLP over gRPC and HTTP and writes what it took to a file, a JSON
// object a line. All of it is the collector's own code; only the choice of its parts is made here.
package main

import (
	"log"

	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/fileexporter"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
)

func factories() (otelcol.Factories, error) {
	taker, writer := otlpreceiver.NewFactory(), fileexporter.NewFactory()
	return otelcol.Factories{
		Receivers: map[component.Type]receiver.Factory{taker.Type(): taker},
		Exporters: map[component.Type]exporter.Factory{writer.Type(): writer},
		Telemetry: otelconftelemetry.NewFactory(),
	}, nil
}

func main() {
	command := otelcol.NewCommand(otelcol.CollectorSettings{
		BuildInfo: component.BuildInfo{Command: "test-collector", Description: "for the tests", Version: "0.160.0"},
		Factories: factories,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{
			ResolverSettings: confmap.ResolverSettings{
				DefaultScheme:     "file",
				ProviderFactories: []confmap.ProviderFactory{fileprovider.NewFactory()},
			},
		},
	})
	if err := command.Execute(); err != nil {
		log.Fatal(err)
	}
}
