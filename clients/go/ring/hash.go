package ring

import (
	"encoding/binary"
	"math/bits"
)

// HashName is the name of the hashing scheme in a snapshot's "hash" field.
const HashName = "hrw-xxh64-sm64-v1"

const (
	prime1 uint64 = 11400714785074694791
	prime2 uint64 = 14029467366897019727
	prime3 uint64 = 1609587929392839161
	prime4 uint64 = 9650029242287828579
	prime5 uint64 = 2870177450012600261
)

// H is XXH64 with seed 0 of the bytes of text.
func H(text string) uint64 {
	input := []byte(text)
	length := uint64(len(input))
	var h uint64
	if len(input) >= 32 {
		// The lanes start at sums that wrap, so they are made at run time: constants may not.
		v1, v2, v3, v4 := prime1, prime2, uint64(0), uint64(0)
		v1 += prime2
		v4 -= prime1
		for ; len(input) >= 32; input = input[32:] {
			v1 = round(v1, binary.LittleEndian.Uint64(input))
			v2 = round(v2, binary.LittleEndian.Uint64(input[8:]))
			v3 = round(v3, binary.LittleEndian.Uint64(input[16:]))
			v4 = round(v4, binary.LittleEndian.Uint64(input[24:]))
		}
		h = bits.RotateLeft64(v1, 1) + bits.RotateLeft64(v2, 7) + bits.RotateLeft64(v3, 12) + bits.RotateLeft64(v4, 18)
		for _, v := range []uint64{v1, v2, v3, v4} {
			h = (h^round(0, v))*prime1 + prime4
		}
	} else {
		h = prime5
	}
	h += length
	for ; len(input) >= 8; input = input[8:] {
		h = bits.RotateLeft64(h^round(0, binary.LittleEndian.Uint64(input)), 27)*prime1 + prime4
	}
	if len(input) >= 4 {
		h = bits.RotateLeft64(h^uint64(binary.LittleEndian.Uint32(input))*prime1, 23)*prime2 + prime3
		input = input[4:]
	}
	for _, b := range input {
		h = bits.RotateLeft64(h^uint64(b)*prime5, 11) * prime1
	}
	h = (h ^ h>>33) * prime2
	h = (h ^ h>>29) * prime3
	return h ^ h>>32
}

func round(lane, input uint64) uint64 {
	return bits.RotateLeft64(lane+input*prime2, 31) * prime1
}

// Mix is the finaliser of SplitMix64.
func Mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// Score is the score of an adapter on a slot; an adapter belongs to the slots with the highest scores.
func Score(adapter, slot string) uint64 {
	return Mix(H(adapter) ^ H(slot))
}
