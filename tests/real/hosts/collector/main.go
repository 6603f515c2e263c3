// collector is an OpenTelemetry Collector that receives OTLP and writes files.
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

func main() {
	receives, exports := otlpreceiver.NewFactory(), fileexporter.NewFactory()
	settings := otelcol.CollectorSettings{
		BuildInfo: component.BuildInfo{Command: "collector", Version: "0"},
		Factories: func() (otelcol.Factories, error) {
			return otelcol.Factories{
				Telemetry: otelconftelemetry.NewFactory(),
				Receivers: map[component.Type]receiver.Factory{receives.Type(): receives},
				Exporters: map[component.Type]exporter.Factory{exports.Type(): exports},
			}, nil
		},
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			DefaultScheme: "file", ProviderFactories: []confmap.ProviderFactory{fileprovider.NewFactory()},
		}},
	}
	if err := otelcol.NewCommand(settings).Execute(); err != nil {
		log.Fatal(err)
	}
}
