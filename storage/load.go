package storage

type loadCache struct{}
