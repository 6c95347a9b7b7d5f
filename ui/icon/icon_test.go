package icon_test

import (
	"bytes"
	"image"
	"image/color"
	"os"
	"testing"

	"singlepass.dev/ui/icon"
)

// small is the size of a panel's icon.
const small = 22

type shown struct {
	kind  icon.Kind
	count int
}

func all() (list []shown) {
	for _, k := range icon.Kinds() {
		if k != icon.Waiting {
			list = append(list, shown{k, 0})
		}
	}
	for n := 1; n <= 10; n++ {
		list = append(list, shown{icon.Waiting, n})
	}
	return list
}

func drawn(t *testing.T, s shown) *image.NRGBA {
	t.Helper()
	m, err := icon.Draw(s.kind, s.count, small)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// seen is what a panel of one grey shows of an icon: without colour.
func seen(m *image.NRGBA, panel uint8) []int {
	var grey []int
	for i := 0; i < len(m.Pix); i += 4 {
		y := int(color.GrayModel.Convert(color.RGBA{m.Pix[i], m.Pix[i+1], m.Pix[i+2], 0xff}).(color.Gray).Y)
		a := int(m.Pix[i+3])
		grey = append(grey, (y*a+int(panel)*(255-a))/255)
	}
	return grey
}

// different counts the pixels that a person can tell apart.
func different(a, b []int) (n int) {
	for i := range a {
		if d := a[i] - b[i]; d > 60 || d < -60 {
			n++
		}
	}
	return n
}

func TestEveryStateCanBeToldWithoutColourOnAnyPanel(t *testing.T) {
	list := all()
	for _, panel := range []uint8{0xf2, 0x22} {
		for i, a := range list {
			for _, b := range list[:i] {
				least := small * small / 12
				if a.kind == b.kind {
					least = 8 // two numbers
				}
				if n := different(seen(drawn(t, a), panel), seen(drawn(t, b), panel)); n < least {
					t.Errorf("on a panel of grey %#x %v and %v differ in %d pixels only", panel, a, b, n)
				}
			}
		}
	}
}

func TestEveryStateStandsOutOnAnyPanel(t *testing.T) {
	for _, panel := range []uint8{0xff, 0xc0, 0x60, 0x22, 0x00} {
		empty := make([]int, small*small)
		for i := range empty {
			empty[i] = int(panel)
		}
		for _, s := range all() {
			if n := different(seen(drawn(t, s), panel), empty); n < small*small/8 {
				t.Errorf("on a panel of grey %#x only %d pixels of %v stand out", panel, n, s)
			}
		}
	}
}

func TestTheSameStateIsTheSamePicture(t *testing.T) {
	for _, s := range all() {
		a, err := icon.PNG(s.kind, s.count, small)
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := icon.PNG(s.kind, s.count, small); !bytes.Equal(a, b) {
			t.Errorf("%v is drawn in two ways", s)
		}
	}
	many, _ := icon.PNG(icon.Waiting, 10, small)
	if more, _ := icon.PNG(icon.Waiting, 200, small); !bytes.Equal(many, more) {
		t.Error("past nine the number changes")
	}
}

func TestTheProgramsIconIsTheOneThatIsDrawnHere(t *testing.T) {
	want, err := icon.PNG(icon.Locked, 0, 128)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../assets/icons/singlepass.png")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("assets/icons/singlepass.png is another picture (%v); go run ./assets/icons assets/icons", err)
	}
}

func TestWhatCannotBeDrawnIsAnError(t *testing.T) {
	for _, f := range []func() error{
		func() error { _, err := icon.PNG("smiling", 0, small); return err },
		func() error { _, err := icon.PNG(icon.Locked, 0, 0); return err },
		func() error { _, err := icon.PNG(icon.Locked, 0, 1<<20); return err },
	} {
		if f() == nil {
			t.Error("drawn")
		}
	}
}
