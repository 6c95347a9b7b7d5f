package journal

// proveHead reads the last acknowledged line and the wiped region past the page cache, where the file
// can do that.
func (j *Journal) proveHead() error {
	d, ok := j.file.(interface {
		ReadDirect(b []byte, offset int64) (bool, error)
	})
	if !ok {
		return nil
	}
	line := make([]byte, j.synced-j.durable.Offset)
	if read, err := d.ReadDirect(line, j.durable.Offset); err != nil || !read {
		return err
	}
	return j.checkHead(line)
}
