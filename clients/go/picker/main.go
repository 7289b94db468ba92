package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	ext "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"lora-autoscaler/clients/go/ring"
)

const lastCalls = 5 * time.Second

func main() {
	listen := flag.String("listen", ":9002", "address for Envoy's gRPC calls")
	url := flag.String("ring-url", "", "the fleet's ring: https://CONTROLLER/v1/fleets/FLEET/ring")
	tokenFile := flag.String("token-file", "", "file with the bearer token of a reader; read anew for each call")
	router := flag.String("router", hostname(), "this router's name in acknowledgements")
	state := flag.String("state-file", "", "keeps the last good snapshot over restarts")
	maxBody := flag.Int("max-body-bytes", 8<<20, "longest request body")
	flag.Parse()
	if *url == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := serve(*listen, *url, *tokenFile, *router, *state, *maxBody); err != nil {
		log.Fatal(err)
	}
}

func serve(listen, url, tokenFile, router, state string, maxBody int) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	client := &ring.Client{URL: url, Router: router, File: state, Told: func(err error) { log.Print(err) }}
	if tokenFile != "" {
		client.Token = func() (string, error) {
			text, err := os.ReadFile(tokenFile)
			return strings.TrimSpace(string(text)), err
		}
	}
	go client.Run(ctx)
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxBody + 1<<20))
	ext.RegisterExternalProcessorServer(server, newPicker(client.Current, maxBody))
	healthpb.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	log.Printf("picks endpoints at %s", listener.Addr())
	go func() {
		<-ctx.Done()
		// Requests that are under way keep their streams for a moment; Envoy then goes on without them.
		time.AfterFunc(lastCalls, server.Stop)
		server.GracefulStop()
	}()
	return server.Serve(listener)
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "picker"
	}
	return name
}
