"""tmp"""
import asyncio, sys, signal, logging
from strandline.config.load import load_broker_config
from strandline.broker.startup import start_broker
def main():
    logging.basicConfig(level=logging.INFO)
    ov=[a for i,a in enumerate(sys.argv) if sys.argv[i-1]=='--set']
    cfg=load_broker_config(None,ov)
    async def run():
        b=await start_broker(cfg.config)
        print("ready",b.report,flush=True)
        ev=asyncio.Event()
        for s in (signal.SIGINT,signal.SIGTERM): asyncio.get_running_loop().add_signal_handler(s,ev.set)
        await ev.wait()
        print("clean:",await b.stop())
    asyncio.run(run())
if __name__=='__main__': main()
