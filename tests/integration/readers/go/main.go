// Reads Avro container files with hamba/avro and prints every record as one line of JSON in which each value shows its
// exact content: integers as "i:…", floats by their bits "f:…", bytes "b:…", strings "s:…", union branches as [name, value].
package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"os"
	"reflect"

	"github.com/hamba/avro/v2"
	"github.com/hamba/avro/v2/ocf"
)

func main() {
	out := bufio.NewWriter(os.Stdout)
	for _, path := range os.Args[1:] {
		if err := read(path, out); err != nil {
			fmt.Fprintln(os.Stderr, path, err)
			os.Exit(1)
		}
	}
	if err := out.Flush(); err != nil {
		os.Exit(1)
	}
}

func read(path string, out *bufio.Writer) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	decoder, err := ocf.NewDecoder(file)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for decoder.HasNext() {
		var record any
		if err := decoder.Decode(&record); err != nil {
			return err
		}
		if err := encoder.Encode(show(decoder.Schema(), record)); err != nil {
			return err
		}
	}
	return decoder.Error()
}

func show(schema avro.Schema, value any) any {
	switch s := schema.(type) {
	case *avro.RefSchema:
		return show(s.Schema(), value)
	case *avro.UnionSchema:
		return showUnion(s, value)
	case *avro.RecordSchema:
		fields := value.(map[string]any)
		shown := map[string]any{}
		for _, field := range s.Fields() {
			shown[field.Name()] = show(field.Type(), fields[field.Name()])
		}
		return shown
	case *avro.ArraySchema:
		shown := []any{}
		for _, item := range value.([]any) {
			shown = append(shown, show(s.Items(), item))
		}
		return shown
	case *avro.PrimitiveSchema:
		if decimal, ok := s.Logical().(*avro.DecimalLogicalSchema); ok {
			return "b:" + hex.EncodeToString(unscaled(value, decimal.Scale()))
		}
	}
	return showScalar(value)
}

func showUnion(union *avro.UnionSchema, value any) any {
	if value == nil {
		return nil
	}
	// hamba gives a map from the branch's name to its value, or the bare value where it has a Go type for the branch.
	if wrapped, ok := value.(map[string]any); ok && len(wrapped) == 1 {
		for name, inner := range wrapped {
			for _, branch := range union.Types() {
				if branchName(branch) == name {
					return []any{name, show(branch, inner)}
				}
			}
		}
	}
	branch := union.Types()[1]
	return []any{branchName(branch), show(branch, value)}
}

func branchName(schema avro.Schema) string {
	if ref, ok := schema.(*avro.RefSchema); ok {
		return ref.Schema().FullName()
	}
	if named, ok := schema.(avro.NamedSchema); ok {
		return named.FullName()
	}
	if primitive, ok := schema.(*avro.PrimitiveSchema); ok && primitive.Logical() != nil {
		return string(primitive.Type()) + "." + string(primitive.Logical().Type())
	}
	return string(schema.Type())
}

// unscaled is the integer of a decimal in two's complement, big-endian, without needless bytes.
func unscaled(value any, scale int) []byte {
	var rat *big.Rat
	switch v := value.(type) {
	case *big.Rat:
		rat = v
	case big.Rat:
		rat = &v
	default:
		panic(fmt.Sprintf("unexpected decimal %T", value))
	}
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)
	shifted := new(big.Rat).Mul(rat, new(big.Rat).SetInt(power))
	if !shifted.IsInt() {
		panic("a decimal has too many digits")
	}
	number := shifted.Num()
	size := number.BitLen()/8 + 1
	if number.Sign() < 0 {
		size = new(big.Int).Not(number).BitLen()/8 + 1
		number = new(big.Int).Add(number, new(big.Int).Lsh(big.NewInt(1), uint(8*size)))
	}
	return number.FillBytes(make([]byte, size))
}

func showScalar(value any) any {
	switch v := value.(type) {
	case nil, bool:
		return v
	case int, int32, int64:
		return fmt.Sprintf("i:%d", v)
	case float32:
		return fmt.Sprintf("f:%08x", math.Float32bits(v))
	case float64:
		return fmt.Sprintf("f:%016x", math.Float64bits(v))
	case string:
		return "s:" + v
	case []byte:
		return "b:" + hex.EncodeToString(v)
	}
	// A fixed is a Go array of its size.
	array := reflect.ValueOf(value)
	if array.Kind() == reflect.Array && array.Type().Elem().Kind() == reflect.Uint8 {
		data := make([]byte, array.Len())
		reflect.Copy(reflect.ValueOf(data), array)
		return "b:" + hex.EncodeToString(data)
	}
	panic(fmt.Sprintf("unexpected value %T", value))
}
