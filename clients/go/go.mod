module lora-autoscaler/clients/go

go 1.24
